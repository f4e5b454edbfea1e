// dst = saturate(round(src / scale) + zero), halves to even, with the scale and zero point that spread the range of src, 0
// included, over 0 to 255; the scale is 1 / 255 where the range is empty.
//
// For CPUs one kernel, which drivers compile when it is first launched. dynamic_quantize_linear is launched once for scale and
// zero point and for the first `quantized` elements, which one work item computes; then with `quantized` below 0 for all, RUN
// elements a work item. NDRange: (1), then (size / RUN, rounded up to the local size).
//
// With GROUP two kernels. range_of_parts finds the ranges of parts of src, one for each group. NDRange: (parts * GROUP), local
// size GROUP, a power of two. dynamic_quantize_linear finds the whole range of these in each group, and quantizes EACH times four
// elements a work item. NDRange: (size / 4 / EACH, rounded up to the local size), local size GROUP.
//
// Tunables: GROUP, EACH, RUN, parts.
#ifndef RUN
#define RUN 1
#endif
// Not vload: some drivers leave it as a function call.
typedef struct __attribute__((packed)) {
  float8 v;
} PACKED;
typedef struct __attribute__((packed)) {
  uchar8 v;
} PACKED_BYTES;

static float scale_of(const float low, const float high) { return (high == low ? 1.0f : high - low) / 255.0f; }

static uchar zero_of(const float low, const float scale) {
  return convert_uchar_sat(rint(fmin(fmax(-low / scale, 0.0f), 255.0f)));
}

static void quantize(__global const float* restrict src, __global uchar* restrict dst, const float divisor, const float shift,
                     const int first, const int last) {
  // Rounded to a whole number by a sum, where it is not too large anyway: drivers for CPUs compute rint one element at a time.
  int o = first;
#ifndef GROUP
  // The sum leaves it in the low byte.
  for (; o + 8 <= last; o += 8) {
    const float8 y = ((__global const PACKED*)(src + o))->v / divisor + 12582912.0f + shift, n = y == y ? y : 12582912.0f;
    ((__global PACKED_BYTES*)(dst + o))->v = convert_uchar8(as_int8(n < 12582912.0f ? 12582912.0f : (n > 12583167.0f ? 12583167.0f : n)));
  }
#endif
  for (; o < last; ++o) {
    const float y = src[o] / divisor + 12582912.0f - 12582912.0f + shift;
    dst[o] = (uchar)clamp(y == y ? y : 0.0f, 0.0f, 255.0f);
  }
}

// x is (lowest, highest); NaN stays.
static float2 widened(const float2 x, const float low, const float high) {
  return (float2)(low < x.x || low != low ? low : x.x, high > x.y || high != high ? high : x.y);
}

#ifdef GROUP
// The range of all items of a group.
static float2 range_of_group(__local float2* found, const float2 own, const int lane) {
  found[lane] = own;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int n = GROUP / 2; n > 0; n /= 2) {
    if (lane < n) found[lane] = widened(found[lane], found[lane + n].x, found[lane + n].y);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return found[0];
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void range_of_parts(__global const float* restrict src,
                                                                                __global float2* restrict part, const int size) {
  __local float2 found[GROUP];
  const int lane = get_local_id(0), item = get_global_id(0), fours = size / 4;
  float2 own = (float2)(0);
#pragma unroll 4
  for (int i = item; i < fours; i += get_global_size(0)) {
    const float4 x = ((__global const float4*)src)[i];
    own = widened(own, x.x, x.x);
    own = widened(own, x.y, x.y);
    own = widened(own, x.z, x.z);
    own = widened(own, x.w, x.w);
  }
  if (item < size % 4) own = widened(own, src[fours * 4 + item], src[fours * 4 + item]);
  own = range_of_group(found, own, lane);
  if (lane == 0) part[get_group_id(0)] = own;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void dynamic_quantize_linear(
    __global const float* restrict src, __global const float2* restrict part, __global float* restrict scale,
    __global uchar* restrict zero, __global uchar* restrict dst, const int size, const int parts) {
  __local float2 found[GROUP];
  const int lane = get_local_id(0);
  float2 range = (float2)(0);
  for (int i = lane; i < parts; i += GROUP) range = widened(range, part[i].x, part[i].y);
  range = range_of_group(found, range, lane);
  const float divisor = scale_of(range.x, range.y);
  const uchar shift = zero_of(range.x, divisor);
  if (get_global_id(0) == 0) {
    scale[0] = divisor;
    zero[0] = shift;
  }
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int first = ((get_group_id(0) * EACH + e) * GROUP + lane) * 4;
    if (first + 4 <= size) {
      const float4 x = rint(*(__global const float4*)(src + first) / divisor) + (float)shift;
      *(__global uchar4*)(dst + first) = convert_uchar4(clamp(x == x ? x : (float4)(0), 0.0f, 255.0f));
    } else if (first < size) {
      quantize(src, dst, divisor, shift, first, size);
    }
  }
}
#else
__kernel void dynamic_quantize_linear(__global const float* restrict src, __global float* restrict scale,
                                      __global uchar* restrict zero, __global uchar* restrict dst, const int size,
                                      const int quantized) {
  if (quantized < 0) {
    const int first = get_global_id(0) * RUN, last = min(first + RUN, size);
    quantize(src, dst, scale[0], zero[0], first, last);
    return;
  }
  float2 range = (float2)(0);
  int i = 0;
  // Vectors, with NaN looked for besides: a comparison with it is false.
  float8 least = 0, most = 0;
  int8 strange = 0;
  for (; i + 8 <= size; i += 8) {
    const float8 x = ((__global const PACKED*)(src + i))->v;
    least = x < least ? x : least;
    most = x > most ? x : most;
    strange |= x != x;
  }
  for (int j = 0; j < 8; ++j) range = widened(range, ((float*)&least)[j], ((float*)&most)[j]);
  if (any(strange)) range = (float2)(NAN);
  for (; i < size; ++i) range = widened(range, src[i], src[i]);
  scale[0] = scale_of(range.x, range.y);
  zero[0] = zero_of(range.x, scale[0]);
  quantize(src, dst, scale[0], zero[0], 0, quantized);
}
#endif
