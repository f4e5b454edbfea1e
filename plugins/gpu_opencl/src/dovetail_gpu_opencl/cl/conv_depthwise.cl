// Depthwise convolution in two dimensions for CPUs: dst[n][m] = post(bia[m] + src[n][m / (M / C)] convolved with wei[m]).
//
// A work item computes ROWS rows of output in vectors of VEC elements along x: from FIRST up to LAST, where windows do not leave
// the input to the left or right, from where the input is; elsewhere from a copy with zeros around. No local memory.
// NDRange: (ceil(OH / ROWS), M, N), local size 1.
//
// Elements outside the input are zeros that are multiplied: an infinite weight gives NaN there.
//
// Layout: src [N][C][IH][IW] and dst [N][M][OH][OW] dense; wei [M][KH][KW]; bia [M].
//
// Sizes of tensors are arguments, so that planes of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: ROWS; VEC (at most 8, see capabilities.py). Private memory: LINES * SPAN elements of ACC.
#include "image_rows.cl"
#ifndef ROWS
#define ROWS 8
#endif
#define LINES ((ROWS - 1) * STRIDE_Y + (KH - 1) * DILATION_Y + 1)
#define SPAN ((VEC - 1) * STRIDE_X + (KW - 1) * DILATION_X + 1)

static VACC load_copy(const ACC* p) {
#if STRIDE_X == 1
  return ((const PACKED_ACC*)p)->v;
#else
  ACC v[VEC] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
  for (int i = 0; i < VEC; ++i) v[i] = p[i * STRIDE_X];
  return *(VACC*)v;
#endif
}

__kernel void conv_depthwise(__global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst,
                             const int C, const int M, const int IH, const int IW, const int OH, const int OW, const int PAD_Y,
                             const int PAD_X, const int FIRST, const int LAST POST_ARGS) {
  const int first = get_global_id(0) * ROWS, m = get_global_id(1), n = get_global_id(2);
  __global const T* s = src + (n * C + m / (M / C)) * (IH * IW);
  __global const T* w = wei + m * (KH * KW);
  const int count = min(ROWS, OH - first), top = first * STRIDE_Y - PAD_Y, out = ((n * M + m) * OH + first) * OW;
  const ACC bias = BIAS(m);
  for (int r = 0; r < count; ++r)
    for (int ox = (FIRST + VEC - 1) / VEC * VEC; ox + VEC <= LAST; ox += VEC) {
      VACC acc = (VACC)(bias);
#pragma unroll
      for (int ky = 0; ky < KH; ++ky) {
        const int y = top + r * STRIDE_Y + ky * DILATION_Y;
        if (y >= 0 && y < IH)
#pragma unroll
          for (int kx = 0; kx < KW; ++kx)
            acc += (ACC)w[ky * KW + kx] * load(s + y * IW + ox * STRIDE_X - PAD_X + kx * DILATION_X);
        else
#pragma unroll
          for (int kx = 0; kx < KW; ++kx) acc += (ACC)w[ky * KW + kx] * (ACC)0;
      }
      VSTORE(POST_V(acc, out + r * OW + ox), dst + out + r * OW + ox);
    }
  const int lines = (count - 1) * STRIDE_Y + (KH - 1) * DILATION_Y + 1;
  for (int ox = 0; ox < OW; ox += VEC) {
    if (ox >= FIRST && ox + VEC <= LAST) continue;
    ACC copy[LINES * SPAN];
    const int left = ox * STRIDE_X - PAD_X;
    for (int l = 0; l < lines; ++l)
      for (int i = 0; i < SPAN; ++i) {
        const int y = top + l, x = left + i;
        copy[l * SPAN + i] = y >= 0 && y < IH && x >= 0 && x < IW ? (ACC)s[y * IW + x] : (ACC)0;
      }
    for (int r = 0; r < count; ++r) {
      VACC acc = (VACC)(bias);
#pragma unroll
      for (int ky = 0; ky < KH; ++ky)
#pragma unroll
        for (int kx = 0; kx < KW; ++kx)
          acc += (ACC)w[ky * KW + kx] * load_copy(copy + (r * STRIDE_Y + ky * DILATION_Y) * SPAN + kx * DILATION_X);
      const int o = out + r * OW + ox;
      if (ox + VEC <= OW) {
        VSTORE(POST_V(acc, o), dst + o);
      } else {
        ACC v[VEC] __attribute__((aligned(sizeof(VACC))));
        *(VACC*)v = acc;
        for (int i = 0; i < OW - ox; ++i) dst[o + i] = (T)(POST(v[i], o + i));
      }
    }
  }
}
