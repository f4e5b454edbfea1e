// Batch normalization by the statistics of src itself: mean and variance of each channel over all instances and places, and
// running = given * MOMENTUM + current * (1 - MOMENTUM); saved are the current mean, and 1 / sqrt(current variance + EPSILON).
//
// A work group of GROUP items computes a channel. NDRange: (channels * GROUP), local size GROUP, a power of two.
//
// Layout: src and dst [batch][channels][inner]; everything else [channels]. new_* and saved_* may be NULL.
//
// Tunables: GROUP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define P float
#define LOAD_P(p, i) ((p)[i])
#define M float
#define LOAD_M(p, i) ((p)[i])
#define STORE_M(p, i, v) ((p)[i] = (v))
#define ACC float
#define EPSILON 1e-5f
#define MOMENTUM 0.9f
#endif
#ifndef GROUP
#define GROUP 1
#endif
#include "joins.cl"
#define PLACE(i) (((i) / inner * channels + c) * inner + (i) % inner)

__kernel void batch_normalization_training(__global const T* restrict src, __global const P* restrict scale,
                                           __global const P* restrict bias, __global const M* restrict mean,
                                           __global const M* restrict variance, __global T* restrict dst,
                                           __global M* new_mean, __global M* new_variance, __global M* saved_mean,
                                           __global M* saved_variance, const int channels, const int count,
                                           const int inner) {
#if GROUP > 1
  __local ACC part[GROUP];
#endif
  const int c = get_group_id(0), lane = get_local_id(0);
  ACC sum = 0, squares = 0;
  for (int i = lane; i < count; i += GROUP) sum += LOAD_T(src, PLACE(i));
  COLLECT(sum, PLUS)
  const ACC current = sum / count;
  for (int i = lane; i < count; i += GROUP) {
    const ACC x = (ACC)LOAD_T(src, PLACE(i)) - current;
    squares += x * x;
  }
  COLLECT(squares, PLUS)
  const ACC spread = squares / count, deviation = sqrt(spread + EPSILON), factor = (ACC)LOAD_P(scale, c) / deviation;
  for (int i = lane; i < count; i += GROUP)
    STORE_T(dst, PLACE(i), ((ACC)LOAD_T(src, PLACE(i)) - current) * factor + (ACC)LOAD_P(bias, c));
  if (lane) return;
  if (new_mean) STORE_M(new_mean, c, (ACC)LOAD_M(mean, c) * MOMENTUM + current * (1 - MOMENTUM));
  if (new_variance) STORE_M(new_variance, c, (ACC)LOAD_M(variance, c) * MOMENTUM + spread * (1 - MOMENTUM));
  if (saved_mean) STORE_M(saved_mean, c, current);
  if (saved_variance) STORE_M(saved_variance, c, 1 / deviation);
}
