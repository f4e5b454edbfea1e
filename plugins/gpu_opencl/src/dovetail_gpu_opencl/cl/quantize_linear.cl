// dst = saturate(round(src / scale) + zero), halves to even; NaN becomes 0. Floats of few bits are not rounded to whole numbers.
// zero may be NULL.
//
// A work item computes RUN elements of a run, which share their parameters.
// NDRange: (length / RUN, rounded up to the local size, number of runs); runs of one element change places: (runs, 1).
//
// Layout: element o is the element o % length of its run. Its parameters are at o / (inner * axis) * outer_stride +
// o / inner % axis / block * block_stride + o % inner * inner_stride. PRECISE(x): x as the numerator, the scale and the quotient
// are rounded. WHOLE(x): the quotient as a whole number, where the result is one. SATURATED(x): x in the range of Q.
//
// With SHARED all elements have the same. With FOURS besides, for floats that become 8-bit numbers, an item computes four
// elements, and divides only where the product by the reciprocal is so near a half that roundings may have moved it to the other
// side. NDRange: (size / 4, rounded up to the local size).
//
// Tunables: RUN, the local size.
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
#define SATURATED(x) (uchar)clamp((x) == (x) ? (x) : 0.0f, 0.0f, 255.0f)
#endif
#ifndef RUN
#define RUN 1
#endif

#ifdef FOURS
typedef struct {
  Q v[4] __attribute__((aligned(4)));
} FOUR;

static float quotient_of(const float x, const float divisor, const float inverse) {
  const float t = x * inverse, r = WHOLE(t);
  // Up to 1024, beyond what can be stored, t is less than this away from the quotient.
  return fabs(fabs(t - r) - 0.5f) > 0.000244140625f ? r : WHOLE(x / divisor);
}
#endif

__kernel void quantize_linear(__global const T* restrict src, __global const S* restrict scale, __global const Q* zero,
                              __global Q* restrict dst, const int size, const int length, const int inner, const int axis,
                              const int block, const int outer_stride, const int block_stride, const int inner_stride) {
#ifdef FOURS
  const int four = get_global_id(0);
  if (four * 4 >= size) return;
  const float by = scale[0], inverse = fabs(by) > 1e-30f && fabs(by) < 1e30f ? 1.0f / by : NAN,
      plus = zero ? (float)zero[0] : 0.0f;
  float x[4] __attribute__((aligned(16)));
  *(float4*)x = *(__global const float4*)(src + four * 4);
  FOUR found;
#pragma unroll
  for (int e = 0; e < 4; ++e) found.v[e] = SATURATED(quotient_of(x[e], by, inverse) + plus);
  *(__global uint*)(dst + four * 4) = *(uint*)&found;
#else
#ifdef ONE_BY_ONE
  const int first = get_global_id(0), last = min(first + 1, size);
#else
  const int start = get_global_id(1) * length, first = start + get_global_id(0) * RUN;
  const int last = min(first + RUN, start + length);
#endif
  if (first >= last) return;
#ifdef SHARED
  const int at = 0;
#else
  const int at =
      first / (inner * axis) * outer_stride + first / inner % axis / block * block_stride + first % inner * inner_stride;
#endif
  const float s = LOAD_S(scale, at), divisor = PRECISE(s), shift = zero ? (float)LOAD_Q(zero, at) : 0.0f;
  for (int o = first; o < last; ++o) {
    const float x = LOAD_T(src, o);
    const float quotient = WHOLE(PRECISE(PRECISE(x) / divisor)) + shift;
    STORE_Q(dst, o, SATURATED(quotient));
  }
#endif
}
