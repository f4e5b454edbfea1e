// dst[o] = post(sum over r < COUNT of the product of in_i[BASE_i(o) + AT_i(r)] over all INPUTS) for o < SIZE.
//
// A work item computes one element. NDRange: (SIZE, rounded up to the local size).
//
// BASE_i and AT_i are expressions of the flat index of the output's labels and of the others.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define INPUTS 1
#define SIZE 1
#define COUNT 1
#define BASE_0(o) (o)
#define AT_0(r) (r)
#endif
#include "post.cl"
#if INPUTS > 1
#define SECOND_ARG , __global const T* in_1
#define SECOND(o, r) *(ACC)LOAD_T(in_1, BASE_1(o) + AT_1(r))
#else
#define SECOND_ARG
#define SECOND(o, r)
#endif
#if INPUTS > 2
#define THIRD_ARG , __global const T* in_2
#define THIRD(o, r) *(ACC)LOAD_T(in_2, BASE_2(o) + AT_2(r))
#else
#define THIRD_ARG
#define THIRD(o, r)
#endif
#if INPUTS > 3
#define FOURTH_ARG , __global const T* in_3
#define FOURTH(o, r) *(ACC)LOAD_T(in_3, BASE_3(o) + AT_3(r))
#else
#define FOURTH_ARG
#define FOURTH(o, r)
#endif

__kernel void einsum(__global const T* in_0 SECOND_ARG THIRD_ARG FOURTH_ARG, __global T* dst POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= SIZE) return;
  ACC sum = 0;
  for (int r = 0; r < COUNT; ++r) sum += (ACC)LOAD_T(in_0, BASE_0(o) + AT_0(r)) SECOND(o, r) THIRD(o, r) FOURTH(o, r);
  STORE_T(dst, o, POST(sum, o));
}
