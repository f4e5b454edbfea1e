// The mean over the pixels of each image and channel, of halves or floats with channels innermost (NHWC): eight channels of
// LINES-th parts of the pixels an item. Sums are f32.
//
// NDRange: (C / 8 rounded up to WIDTH, LINES, batch), local size (WIDTH, LINES, 1).
//
// Layout: src is [batch][PLANE][C], dst [batch][C]; C is a multiple of 8. Local memory: WIDTH * LINES * 8 floats. LINES is a
// power of two.
//
// Tunables: WIDTH, LINES.
#include "halves.cl"
#ifndef C
#define C 8
#define WIDTH 8
#define LINES 8
#define RESULT_T half
#define T half
#define LOAD_V_T(p) load_half8(p)
#define STORE_V(v, p) store_half8(v, p)
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST_V(s, o) (s)
#endif

__kernel __attribute__((reqd_work_group_size(WIDTH, LINES, 1))) void mean_channels(
    __global const T* restrict src, __global RESULT_T* restrict dst, const int PLANE POST_ARGS) {
  __local float8 part[LINES][WIDTH];
  const int c = get_global_id(0) * 8, lane = get_local_id(0), line = get_local_id(1), batch = get_group_id(2);
  float8 sum = (float8)(0);
  if (c < C) {
#pragma unroll 4
    for (int p = line; p < PLANE; p += LINES) sum += LOAD_V_T(src + (batch * PLANE + p) * C + c);
  }
  part[line][lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_ = LINES / 2; half_ > 0; half_ /= 2) {
    if (line < half_) part[line][lane] += part[line + half_][lane];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (line || c >= C) return;
  sum = part[0][lane] / (float)PLANE;
  const int o = batch * C + c;
  sum = POST_V(sum, o);
  STORE_V(sum, dst + o);
}
