// What kernels for CPUs share that compute rows of an image in vectors along x (conv_columns.cl, conv_depthwise.cl,
// pool_rows.cl): the defaults of their macros, and how VEC elements of a row at a stride of STRIDE_X are read.
#ifndef T
#define T float
#define ACC float
#define KH 1
#define KW 1
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Y 1
#define DILATION_X 1
#endif
#ifndef VEC
#define VEC 8
#endif
#include "post.cl"
#ifdef HAS_BIAS
#define BIAS(m) ((ACC)bia[m])
#else
#define BIAS(m) ((ACC)0)
#endif
#include "vectors.cl"

static VACC load(__global const T* p) {
#if STRIDE_X == 1
  return VLOAD(p);
#elif STRIDE_X == 2 && VEC > 1
  // Up to the last element that is wanted, and not the one behind it.
  const VACC a = VLOAD(p), b = VLOAD(p + VEC - 1);
  return (VACC)(a.even, b.odd);
#else
  ACC v[VEC] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
  for (int i = 0; i < VEC; ++i) v[i] = p[i * STRIDE_X];
  return *(VACC*)v;
#endif
}
