// dst = post((src - zero) * scale). zero may be NULL.
//
// A work item computes RUN elements of a run, which share their parameters.
// NDRange: (length / RUN, rounded up to the local size, number of runs); runs of one element change places: (runs, 1).
//
// Layout: element o is the element o % length of its run. Its parameters are at o / (inner * axis) * outer_stride +
// o / inner % axis / block * block_stride + o % inner * inner_stride. EXACT: the type of the difference.
//
// With SHARED all elements have the same. With FOURS besides, for 8-bit numbers that become floats, an item computes four elements.
// NDRange: (size / 4, rounded up to the local size).
//
// Tunables: RUN, the local size.
#ifndef T
#define T float
#define STORE_T(p, i, v) ((p)[i] = (v))
#define S float
#define LOAD_S(p, i) ((p)[i])
#define Q uchar
#define LOAD_Q(p, i) ((p)[i])
#define EXACT int
#endif
#ifndef RUN
#define RUN 1
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif

// A residual is added to the rounded product.
#pragma OPENCL FP_CONTRACT OFF

__kernel void dequantize_linear(__global const Q* restrict src, __global const S* restrict scale, __global const Q* zero,
                                __global T* dst, const int size, const int length, const int inner, const int axis,
                                const int block, const int outer_stride, const int block_stride,
                                const int inner_stride POST_ARGS) {
#ifdef FOURS
  const int four = get_global_id(0);
  if (four * 4 >= size) return;
  const int shift = zero ? zero[0] : 0;
  const float factor = LOAD_S(scale, 0);
  if (four * 4 + 4 <= size) {
    Q stored[4] __attribute__((aligned(4)));
    *(uint*)stored = *(__global const uint*)(src + four * 4);
    float real[4] __attribute__((aligned(16)));
#pragma unroll
    for (int e = 0; e < 4; ++e) real[e] = (float)((int)stored[e] - shift) * factor;
    *(__global float4*)(dst + four * 4) = *(float4*)real;
  } else {
    for (int o = four * 4; o < size; ++o) dst[o] = (float)((int)src[o] - shift) * factor;
  }
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
  const EXACT shift = zero ? (EXACT)LOAD_Q(zero, at) : 0;
  const float factor = LOAD_S(scale, at);
  for (int o = first; o < last; ++o) {
    const EXACT whole = (EXACT)LOAD_Q(src, o) - shift;
    STORE_T(dst, o, POST((float)whole * factor, o));
  }
#endif
}
