// Launched once for scale and zero point, which spread the range of src, 0 included, over 0 to 255, 1 / 255 when there is none,
// and for the first `quantized` elements, which one work item computes; then with `quantized` below 0 for all:
// dst = saturate(round(src / scale) + zero), halves to even. One kernel, which drivers for CPUs compile when it is first
// launched.
//
// In the second launch a work item computes RUN elements.
// NDRange: (GROUP), local size GROUP, a power of two; (size / RUN, rounded up to the local size).
//
// Tunables: GROUP, RUN.
#ifndef GROUP
#define GROUP 1
#define RUN 1
#endif
// Not vload: some drivers leave it as a function call.
typedef struct __attribute__((packed)) {
  float8 v;
} PACKED;

static void quantize(__global const float* restrict src, __global uchar* restrict dst, const float divisor, const float shift,
                     const int first, const int last) {
  // Rounded to a whole number by a sum, where it is not too large anyway: drivers for CPUs compute rint one element at a time.
  for (int o = first; o < last; ++o) {
    const float y = src[o] / divisor + 12582912.0f - 12582912.0f + shift;
    dst[o] = (uchar)clamp(y == y ? y : 0.0f, 0.0f, 255.0f);
  }
}

__kernel void dynamic_quantize_linear(__global const float* restrict src, __global float* restrict scale,
                                      __global uchar* restrict zero, __global uchar* restrict dst, const int size,
                                      const int quantized) {
  if (quantized < 0) {
    const int first = get_global_id(0) * RUN, last = min(first + RUN, size);
    quantize(src, dst, scale[0], zero[0], first, last);
    return;
  }
  const int lane = get_local_id(0);
  float low = 0, high = 0;
  int i = lane;
#if GROUP == 1
  // Vectors, with NaN looked for besides: a comparison with it is false.
  float8 least = 0, most = 0;
  int8 strange = 0;
  for (; i + 8 <= size; i += 8) {
    const float8 x = ((__global const PACKED*)(src + i))->v;
    least = x < least ? x : least;
    most = x > most ? x : most;
    strange |= x != x;
  }
  for (int j = 0; j < 8; ++j) {
    low = fmin(low, ((float*)&least)[j]);
    high = fmax(high, ((float*)&most)[j]);
  }
  if (any(strange)) low = high = NAN;
#endif
  for (; i < size; i += GROUP) {
    const float x = src[i];
    low = x < low || x != x ? x : low;
    high = x > high || x != x ? x : high;
  }
#if GROUP > 1
  __local float lows[GROUP], highs[GROUP];
  lows[lane] = low;
  highs[lane] = high;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int n = GROUP / 2; n > 0; n /= 2) {
    if (lane < n) {
      const float a = lows[lane + n], b = highs[lane + n];
      if (a < lows[lane] || a != a) lows[lane] = a;
      if (b > highs[lane] || b != b) highs[lane] = b;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  low = lows[0];
  high = highs[0];
#endif
  if (lane == 0) {
    const float s = (high == low ? 1.0f : high - low) / 255.0f;
    const float z = rint(fmin(fmax(-low / s, 0.0f), 255.0f));
    scale[0] = s;
    zero[0] = convert_uchar_sat(z);
    quantize(src, dst, s, zero[0], 0, quantized);
  }
}
