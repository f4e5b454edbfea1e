// Layer normalization for NVIDIA GPUs from sm_80 on: dst = (src - mean) / sqrt(variance + EPSILON) * scale + bia of each row,
// computed in f32. A sub-group of 32 items has a row, eight neighbours an item and turn, in registers.
//
// NDRange: (rows / ROWS rounded up * 32 * ROWS), local size 32 * ROWS.
//
// Layout: src and dst are [COUNT][SIZE], scale and bia [SIZE]; SIZE is a multiple of 8. Tunables: ROWS.
//
// With SOURCE(c), elements c to c + 7 of row `at` in place of src, SOURCE_ARGS are its arguments, and PLACES are declared before
// it.
#include "halves.cl"
#ifndef SIZE
#define SIZE 8
#define EPSILON 1e-5f
#define ROWS 4
#define T half
#define LOAD_V_T(p) load_half8(p)
#define RESULT_T half
#define STORE_V(v, p) store_half8(v, p)
#define P_T half
#define LOAD_V_P_T(p) load_half8(p)
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST_V(s, o) (s)
#endif
#ifndef SOURCE_ARGS
#define SOURCE_ARGS __global const T* restrict src
#define PLACES
#define SOURCE(c) LOAD_V_T(src + at * SIZE + (c))
#endif
#ifdef ROW_PLACE
// The row of a table of `rows` that an index means.
static long row_place(long index, const int rows, __global int* fault) {
  if (index < 0) index += rows;
  if (index >= 0 && index < rows) return index;
  *fault = 1;
  return 0;
}
#endif
#include "matrix_instructions.cl"
#define SUB_GROUP 32
#define ITEMS (SUB_GROUP * ROWS)
#include "standardize.cl"
#ifdef HAS_BIAS
#define BIAS_ARG , __global const P_T* restrict bia
#else
#define BIAS_ARG
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void layer_normalization_halves(
    SOURCE_ARGS, __global const P_T* restrict scale BIAS_ARG, __global RESULT_T* restrict dst, const int COUNT POST_ARGS) {
  __local uchar tile[16] __attribute__((aligned(16)));
  EXCHANGE
  const int item = get_local_id(0), lane = item % SUB_GROUP, row = get_group_id(0) * ROWS + item / SUB_GROUP;
  const int at = min(row, COUNT - 1);
  PLACES
  float8 x[1][TURNS];
#pragma unroll
  for (int t = 0; t < TURNS; ++t) {
    const int c = (t * SUB_GROUP + lane) * 8;
    x[0][t] = (float8)(0);
    if (c < SIZE) x[0][t] = SOURCE(c);
  }
  STANDARDIZE(x, 1);
  if (row >= COUNT) return;
#pragma unroll
  for (int t = 0; t < TURNS; ++t) {
    const int c = (t * SUB_GROUP + lane) * 8, o = row * SIZE + c;
    if (c >= SIZE) continue;
    float8 v = x[0][t] * LOAD_V_P_T(scale + c);
#ifdef HAS_BIAS
    v += LOAD_V_P_T(bia + c);
#endif
    v = POST_V(v, o);
    STORE_V(v, dst + o);
  }
}
