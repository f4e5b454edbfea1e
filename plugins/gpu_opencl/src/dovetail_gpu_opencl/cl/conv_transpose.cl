// Transposed convolution in up to three dimensions: dst[n][g * maps + m] = post(bia + sum of src[n][g * own + c] * wei over the
// input elements i and kernel elements k with i * stride - pad + k * dilation = o).
//
// A work item computes MAPS output channels at one place. NDRange: (batch * groups * ceil(maps / MAPS) * od * oh * ow, rounded
// up).
//
// Layout: src and dst dense NCDHW (missing axes of size 1); weight c of the whole input, m of a group and k are at
// c * step_c + m * step_m + k * step_k. bia [groups * maps] with HAS_BIAS.
//
// Tunables: MAPS; the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define HAS_BIAS
#endif
#ifndef MAPS
#define MAPS 8
#endif
#include "post.cl"
// The input element that kernel element k brings to output element o along an axis; -1 when there is none.
#define SOURCE(o, k, stride, dilation, pad, size)                    \
  ((o) + pad - (k)*dilation < 0 || ((o) + pad - (k)*dilation) % stride || ((o) + pad - (k)*dilation) / stride >= size \
       ? -1                                                          \
       : ((o) + pad - (k)*dilation) / stride)

__kernel void conv_transpose(__global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst,
                             const int groups, const int own, const int maps, const int step_c, const int step_m,
                             const int step_k, const int batch, const int id, const int ih, const int iw, const int od,
                             const int oh, const int ow, const int kd, const int kh, const int kw, const int stride_z,
                             const int stride_y, const int stride_x, const int dilation_z, const int dilation_y,
                             const int dilation_x, const int pad_z, const int pad_y, const int pad_x POST_ARGS) {
  const int o = get_global_id(0), blocks = (maps + MAPS - 1) / MAPS;
  const int ox = o % ow, oy = o / ow % oh, oz = o / (ow * oh) % od, rest = o / (ow * oh * od);
  const int m0 = rest % blocks * MAPS, g = rest / blocks % groups, n = rest / (blocks * groups);
  if (n >= batch) return;
  const int plane = id * ih * iw, count = min(MAPS, maps - m0);
  ACC acc[MAPS];
  for (int m = 0; m < MAPS; ++m) acc[m] = 0;
  for (int kz = 0; kz < kd; ++kz) {
    const int z = SOURCE(oz, kz, stride_z, dilation_z, pad_z, id);
    if (z < 0) continue;
    for (int ky = 0; ky < kh; ++ky) {
      const int y = SOURCE(oy, ky, stride_y, dilation_y, pad_y, ih);
      if (y < 0) continue;
      for (int kx = 0; kx < kw; ++kx) {
        const int x = SOURCE(ox, kx, stride_x, dilation_x, pad_x, iw);
        if (x < 0) continue;
        __global const T* s = src + (n * groups + g) * own * plane + (z * ih + y) * iw + x;
        __global const T* w = wei + g * own * step_c + m0 * step_m + ((kz * kh + ky) * kw + kx) * step_k;
        for (int c = 0; c < own; ++c, s += plane, w += step_c) {
          const ACC v = LOAD_T(s, 0);
          if (count == MAPS) {
            for (int m = 0; m < MAPS; ++m) acc[m] += v * LOAD_T(w, m * step_m);
          } else {
            for (int m = 0; m < count; ++m) acc[m] += v * LOAD_T(w, m * step_m);
          }
        }
      }
    }
  }
  for (int m = 0; m < count; ++m) {
    const int channel = g * maps + m0 + m;
    const int place = ((n * groups * maps + channel) * od * oh + oz * oh + oy) * ow + ox;
#ifdef HAS_BIAS
    acc[m] += LOAD_T(bia, channel);
#endif
    STORE_T(dst, place, POST(acc[m], place));
  }
}
