// dst = post(src / (BIAS + ALPHA * s) ^ BETA), s being the sum of squares over the channels from `before` ones before to `after`
// after.
//
// A work item computes one element. NDRange: (size, rounded up to the local size).
//
// Layout: src and dst [N][channels][inner].
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define ALPHA 1e-4f
#define BETA 0.75f
#define BIAS 1.0f
#endif
#include "post.cl"

__kernel void lrn(__global const T* restrict src, __global T* dst, const int size, const int channels, const int inner,
                  const int before, const int after POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int c = o / inner % channels;
  ACC sum = 0;
  for (int n = max(0, c - before); n <= min(channels - 1, c + after); ++n) {
    const ACC x = LOAD_T(src, o + (n - c) * inner);
    sum += x * x;
  }
  STORE_T(dst, o, POST((ACC)LOAD_T(src, o) / pow(BIAS + ALPHA * sum, BETA), o));
}
