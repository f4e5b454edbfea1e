// dst = saturate(round(src / scale) + zero), halves to even; NaN becomes 0. zero may be NULL.
//
// A work item computes one element. NDRange: (size, rounded up to the local size).
//
// Layout: the parameters of element o lie at o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride +
// o % inner * inner_stride. HALF_PRECISION: numerator, scale and quotient are rounded to half.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define S float
#define LOAD_S(p, i) ((p)[i])
#define Q uchar
#endif
#define CAT_(x, y, z) x##y##z
#define CAT(x, y, z) CAT_(x, y, z)

#ifdef HALF_PRECISION
static float rounded(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half*)&bits);
  return vload_half(0, (const half*)&bits);
}
#else
#define rounded(x) (x)
#endif

__kernel void quantize_linear(__global const T* restrict src, __global const S* restrict scale, __global const Q* zero,
                              __global Q* restrict dst, const int size, const int inner, const int axis, const int block,
                              const int outer_stride, const int block_stride, const int inner_stride) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int at = o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride + o % inner * inner_stride;
  const float x = LOAD_T(src, o), s = LOAD_S(scale, at);
  const float quotient = rint(rounded(rounded(x) / rounded(s))) + (zero ? (float)zero[at] : 0.0f);
  dst[o] = quotient != quotient ? (Q)0 : CAT(convert_, Q, _sat)(quotient);
}
