// Transposed convolution in two dimensions for CPUs: dst[n][g * maps + m] = post(bia + sum of src[n][g * own + c] * wei over the
// input elements i and kernel elements k with i * stride - pad + k * dilation = o).
//
// A work item computes one row of MAPS output channels, in blocks of STRIDE_X * VEC columns: those with one remainder by STRIDE_X
// read neighbouring columns of the input, and are a vector. No local memory.
// NDRange: (oh, ceil(maps / MAPS), batch * groups), local size 1.
//
// Layout: src and dst dense NCHW; weight c of the whole input, m of a group and k are at c * step_c + m * step_m + k * step_k.
// bia [groups * maps] with HAS_BIAS.
//
// Tunables: MAPS; VEC (at most 8, see capabilities.py). Private memory: MAPS * STRIDE_X * VEC elements of ACC.
#ifndef T
#define T float
#define ACC float
#define KH 2
#define KW 2
#define STRIDE_Y 2
#define STRIDE_X 2
#define DILATION_Y 1
#define DILATION_X 1
#endif
#ifndef MAPS
#define MAPS 8
#endif
#ifndef VEC
#define VEC 8
#endif
#include "post.cl"
#include "vectors.cl"
#define WIDTH (STRIDE_X * VEC)

__kernel void conv_transpose_rows(__global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst,
                                  const int groups, const int own, const int maps, const int step_c, const int step_m,
                                  const int step_k, const int ih, const int iw, const int oh, const int ow, const int pad_y,
                                  const int pad_x POST_ARGS) {
  const int oy = get_global_id(0), m0 = get_global_id(1) * MAPS, z = get_global_id(2), g = z % groups;
  const int count = min(MAPS, maps - m0), plane = ih * iw;
  __global const T* s = src + z * own * plane;
  __global const T* w = wei + g * own * step_c + m0 * step_m;
  for (int x0 = 0; x0 < ow; x0 += WIDTH) {
    ACC line[MAPS * WIDTH] __attribute__((aligned(sizeof(VACC))));
    for (int p = 0; p < STRIDE_X; ++p) {
      VACC acc[MAPS];
#pragma unroll
      for (int m = 0; m < MAPS; ++m) acc[m] = (VACC)(0);
      for (int ky = 0; ky < KH; ++ky) {
        const int down = oy + pad_y - ky * DILATION_Y, y = down / STRIDE_Y;
        if (down < 0 || down % STRIDE_Y || y >= ih) continue;
        for (int kx = 0; kx < KW; ++kx) {
          const int right = x0 + p + pad_x - kx * DILATION_X;
          if (right % STRIDE_X) continue;
          const int x = right / STRIDE_X;
          if (x + VEC <= 0 || x >= iw) continue;
          const int inside = x >= 0 && x + VEC <= iw;
          __global const T* from = s + y * iw + x;
          __global const T* wk = w + (ky * KW + kx) * step_k;
          for (int c = 0; c < own; ++c, from += plane, wk += step_c) {
            if (inside) {
              const VACC v = VLOAD(from);
#pragma unroll
              for (int m = 0; m < MAPS; ++m) acc[m] += v * (ACC)wk[min(m, count - 1) * step_m];
              continue;
            }
            // Lanes outside the input have no product: a weight may be infinite.
            for (int m = 0; m < MAPS; ++m) {
              const ACC weight = wk[min(m, count - 1) * step_m];
              ACC lanes[VEC] __attribute__((aligned(sizeof(VACC))));
              for (int i = 0; i < VEC; ++i) lanes[i] = x + i >= 0 && x + i < iw ? (ACC)from[i] * weight : (ACC)0;
              acc[m] += *(VACC*)lanes;
            }
          }
        }
      }
#pragma unroll
      for (int m = 0; m < MAPS; ++m) {
        const ACC* lanes = (const ACC*)&acc[m];
#pragma unroll
        for (int i = 0; i < VEC; ++i) line[m * WIDTH + i * STRIDE_X + p] = lanes[i];
      }
    }
    for (int m = 0; m < count; ++m) {
      const int channel = g * maps + m0 + m, row = ((z / groups * groups * maps + channel) * oh + oy) * ow;
#ifdef HAS_BIAS
      const ACC bias = bia[channel];
#else
      const ACC bias = 0;
#endif
      for (int x = x0; x < min(x0 + WIDTH, ow); x += VEC) {
        const ACC* found = line + m * WIDTH + x - x0;
        if (x + VEC <= ow)
          VSTORE(POST_V(*(const VACC*)found + bias, row + x), dst + row + x);
        else
          for (int i = 0; x + i < ow; ++i) dst[row + x + i] = (T)(POST(found[i] + bias, row + x + i));
      }
    }
  }
}
