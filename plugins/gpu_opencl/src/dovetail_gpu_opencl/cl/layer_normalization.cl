// dst = post((src - mean) / sqrt(variance + EPSILON) * scale + bia) along rows of SIZE elements. With RMS the mean is taken as 0.
//
// A work group of GROUP items computes a row; VEC > 1 takes vectors. The variance is that of the centred elements (two passes).
// Short rows stay in registers, with their scale and bias, so that memory is waited for once.
// NDRange: (rows * GROUP), local size GROUP, a power of two.
//
// Layout: src, dst [rows][SIZE], which stored_rows.cl reads and writes; scale and bia [SIZE]; HAS_BIAS says whether bia is there.
//
// Tunables: GROUP; VEC (at most 8, see capabilities.py).
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define SIZE 1
#define EPSILON 1e-5f
#define HAS_BIAS
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifndef VEC
#define VEC 1
#endif
#include "post.cl"
#include "vectors.cl"
#include "stored_rows.cl"
#include "joins.cl"
#ifdef RMS
#define MEAN_OF(sum) sum = 0;
#else
#define MEAN_OF(sum) COLLECT(sum, PLUS) sum /= SIZE;
#endif
#define WHOLE (VEC > 1 ? SIZE / VEC * VEC : 0)

__kernel void layer_normalization(__global const X* restrict src, __global const T* restrict scale BIAS_ARG,
    __global Y* dst SOURCE_ARGS POST_ARGS) {
#if GROUP > 1
  __local ACC part[GROUP];
#endif
  const int base = get_group_id(0) * SIZE, lane = get_local_id(0);
  __global const X* s = src + base;
  ACC mean = 0, variance = 0;
#if VEC == 1 && SIZE <= 8 * GROUP
#define EACH ((SIZE + GROUP - 1) / GROUP)
#define HERE (i * GROUP + lane < SIZE)
  ACC x[EACH], scales[EACH], biases[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = min(i * GROUP + lane, SIZE - 1);
    x[i] = READ(s, at);
    scales[i] = LOAD_T(scale, at);
#ifdef HAS_BIAS
    biases[i] = LOAD_T(bia, at);
#else
    biases[i] = 0;
#endif
    if (HERE) mean += x[i];
  }
  MEAN_OF(mean)
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    if (HERE) variance += (x[i] - mean) * (x[i] - mean);
  COLLECT(variance, PLUS)
  const ACC factor = (ACC)1 / sqrt(variance / SIZE + EPSILON);
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    if (HERE)
      WRITE(dst, base + i * GROUP + lane, POST((x[i] - mean) * factor * scales[i] + biases[i], base + i * GROUP + lane));
#else
#ifndef RMS
#if VEC > 1
  VACC sums = (VACC)(0);
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) sums += READ_V(s + i);
  ACROSS(mean, sums, PLUS)
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) mean += (ACC)READ(s, i);
  MEAN_OF(mean)
#endif
#if VEC > 1
  VACC squares = (VACC)(0);
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) {
    const VACC x = READ_V(s + i) - mean;
    squares += x * x;
  }
  ACROSS(variance, squares, PLUS)
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) {
    const ACC x = (ACC)READ(s, i) - mean;
    variance += x * x;
  }
  COLLECT(variance, PLUS)
  const ACC factor = (ACC)1 / sqrt(variance / SIZE + EPSILON);
#if VEC > 1
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) {
    VACC y = (READ_V(s + i) - mean) * factor * VLOAD(scale + i);
#ifdef HAS_BIAS
    y += VLOAD(bia + i);
#endif
    WRITE_V(POST_V(y, base + i), dst + base + i);
  }
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) {
    ACC y = ((ACC)READ(s, i) - mean) * factor * (ACC)LOAD_T(scale, i);
#ifdef HAS_BIAS
    y += (ACC)LOAD_T(bia, i);
#endif
    WRITE(dst, base + i, POST(y, base + i));
  }
#endif
}
