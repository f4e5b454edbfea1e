// dst = post(exp(src - largest) / sum of exp(src - largest)) along rows; LOGARITHM: its logarithm.
//
// GROUP items compute a row of SIZE elements at a stride of INNER, a work group ROWS rows; VEC > 1 (only with INNER 1) takes
// vectors. SIZE and INNER are defines, or among the arguments SIZES, as is COUNT, the number of rows, with ROWS > 1.
// NDRange: (rows / ROWS, rounded up, * ROWS * GROUP), local size ROWS * GROUP; GROUP is a power of two.
//
// Layout: src and dst alike; stored_rows.cl says what they are read and written as.
//
// Tunables: GROUP, ROWS; VEC (at most 8, see capabilities.py).
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define SIZE 1
#define INNER 1
#define SIZES
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifndef ROWS
#define ROWS 1
#define COUNT 1
#endif
#ifndef VEC
#define VEC 1
#endif
#include "post.cl"
#include "vectors.cl"
#include "stored_rows.cl"
#include "joins.cl"
#define WHOLE (VEC > 1 ? SIZE / VEC * VEC : 0)

__kernel void softmax(__global const X* restrict src, __global Y* dst SIZES SOURCE_ARGS POST_ARGS) {
#if GROUP > 1
  __local ACC parts[ROWS * GROUP];
  __local ACC* part = parts + get_local_id(0) / GROUP * GROUP;
#endif
  const int lane = get_local_id(0) % GROUP;
#if ROWS > 1
  const int own = get_group_id(0) * ROWS + get_local_id(0) / GROUP, row = min(own, COUNT - 1);
#else
  const int row = get_group_id(0);
#endif
  const int base = row / INNER * (SIZE * INNER) + row % INNER;
  __global const X* s = src + base;
  ACC top = -INFINITY, sum = 0;
#if VEC > 1
  VACC tops = (VACC)(-INFINITY), sums = (VACC)(0);
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) {
    const VACC x = READ_V(s + i);
    tops = LARGER(tops, x);
  }
  ACROSS(top, tops, LARGER)
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) {
    const ACC x = READ(s, i * INNER);
    top = LARGER(top, x);
  }
  COLLECT(top, LARGER)
#if VEC > 1
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) sums += exp(READ_V(s + i) - top);
  ACROSS(sum, sums, PLUS)
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) sum += exp((ACC)READ(s, i * INNER) - top);
  COLLECT(sum, PLUS)
#ifdef LOGARITHM
  const ACC shift = log(sum);
#define VALUE(x) ((x) - top - shift)
#else
  const ACC factor = (ACC)1 / sum;
#define VALUE(x) (exp((x) - top) * factor)
#endif
#if ROWS > 1
  if (own >= COUNT) return;
#endif
#if VEC > 1
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) WRITE_V(POST_V(VALUE(READ_V(s + i)), base + i), dst + base + i);
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) {
    const int o = base + i * INNER;
    WRITE(dst, o, POST(VALUE((ACC)READ(s, i * INNER)), o));
  }
}
