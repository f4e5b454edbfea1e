// dst = post(exp(src - largest) / sum of exp(src - largest)) along rows; LOGARITHM: its logarithm.
//
// A work group of GROUP items computes a row of SIZE elements at a stride of INNER; VEC > 1 (only with INNER 1) takes vectors.
// SIZE and INNER are defines, or among the arguments SIZES.
// NDRange: (rows * GROUP), local size GROUP, a power of two.
//
// Tunables: GROUP; VEC (at most 8, see capabilities.py).
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
#ifndef VEC
#define VEC 1
#endif
#include "post.cl"
#include "vectors.cl"
#include "joins.cl"
#define WHOLE (VEC > 1 ? SIZE / VEC * VEC : 0)

__kernel void softmax(__global const T* restrict src, __global T* dst SIZES POST_ARGS) {
#if GROUP > 1
  __local ACC part[GROUP];
#endif
  const int row = get_group_id(0), lane = get_local_id(0);
  const int base = row / INNER * (SIZE * INNER) + row % INNER;
  __global const T* s = src + base;
  ACC top = -INFINITY, sum = 0;
#if VEC > 1
  VACC tops = (VACC)(-INFINITY), sums = (VACC)(0);
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) {
    const VACC x = VLOAD(s + i);
    tops = LARGER(tops, x);
  }
  ACROSS(top, tops, LARGER)
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) {
    const ACC x = LOAD_T(s, i * INNER);
    top = LARGER(top, x);
  }
  COLLECT(top, LARGER)
#if VEC > 1
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) sums += exp(VLOAD(s + i) - top);
  ACROSS(sum, sums, PLUS)
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) sum += exp((ACC)LOAD_T(s, i * INNER) - top);
  COLLECT(sum, PLUS)
#ifdef LOGARITHM
  const ACC shift = log(sum);
#define VALUE(x) ((x) - top - shift)
#else
  const ACC factor = (ACC)1 / sum;
#define VALUE(x) (exp((x) - top) * factor)
#endif
#if VEC > 1
  for (int i = lane * VEC; i < WHOLE; i += GROUP * VEC) VSTORE(POST_V(VALUE(VLOAD(s + i)), base + i), dst + base + i);
#endif
  for (int i = WHOLE + lane; i < SIZE; i += GROUP) {
    const int o = base + i * INNER;
    STORE_T(dst, o, POST(VALUE((ACC)LOAD_T(s, i * INNER)), o));
  }
}
