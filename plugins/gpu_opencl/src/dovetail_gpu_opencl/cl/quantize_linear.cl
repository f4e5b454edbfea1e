// dst = saturate(round(src / scale) + zero), halves to even; NaN becomes 0. Floats of few bits are not rounded to whole numbers.
// zero may be NULL.
//
// A work item computes one element. NDRange: (size, rounded up to the local size).
//
// Layout: the parameters of element o lie at o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride +
// o % inner * inner_stride. PRECISE(x): x as the numerator, the scale and the quotient are rounded. WHOLE(x): the quotient as a
// whole number, where the result is one. SATURATED(x): x in the range of Q.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define S float
#define LOAD_S(p, i) ((p)[i])
#define Q uchar
#define LOAD_Q(p, i) ((p)[i])
#define STORE_Q(p, i, v) ((p)[i] = (v))
#define PRECISE(x) (x)
#define WHOLE(x) rint(x)
#define SATURATED(x) ((x) != (x) ? (uchar)0 : convert_uchar_sat(x))
#endif

__kernel void quantize_linear(__global const T* restrict src, __global const S* restrict scale, __global const Q* zero,
                              __global Q* restrict dst, const int size, const int inner, const int axis, const int block,
                              const int outer_stride, const int block_stride, const int inner_stride) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int at = o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride + o % inner * inner_stride;
  const float x = LOAD_T(src, o), s = LOAD_S(scale, at);
  const float quotient = WHOLE(PRECISE(PRECISE(x) / PRECISE(s))) + (zero ? (float)LOAD_Q(zero, at) : 0.0f);
  STORE_Q(dst, o, SATURATED(quotient));
}
