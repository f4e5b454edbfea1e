// Depthwise convolution in two dimensions for CPUs: dst[n][m] = post(bia[m] + src[n][m / (M / C)] convolved with wei[m]).
//
// A work item computes one row of output: single elements where the window leaves the input, and vectors of VEC elements along
// x from FIRST up to LAST, where it does not leave it to the left or right. No local memory.
// NDRange: (OH, M, N), local size 1.
//
// Elements outside the input are zeros that are multiplied: an infinite weight gives NaN there.
//
// Layout: src [N][C][IH][IW] and dst [N][M][OH][OW] dense; wei [M][KH][KW]; bia [M].
//
// Sizes of tensors are arguments, so that planes of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: VEC (at most 8, see capabilities.py).
#include "image_rows.cl"

static ACC single(__global const T* s, __global const T* w, const int y0, const int x0, const int IH,
                  const int IW) {
  ACC acc = 0;
  for (int ky = 0; ky < KH; ++ky) {
    const int y = y0 + ky * DILATION_Y;
    for (int kx = 0; kx < KW; ++kx) {
      const int x = x0 + kx * DILATION_X;
      const ACC value = y >= 0 && y < IH && x >= 0 && x < IW ? (ACC)s[y * IW + x] : (ACC)0;
      acc += value * (ACC)w[ky * KW + kx];
    }
  }
  return acc;
}

__kernel void conv_depthwise(__global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst,
                             const int C, const int M, const int IH, const int IW, const int OH, const int OW, const int PAD_Y,
                             const int PAD_X, const int FIRST, const int LAST POST_ARGS) {
  const int oy = get_global_id(0), m = get_global_id(1), n = get_global_id(2);
  __global const T* s = src + (n * C + m / (M / C)) * (IH * IW);
  __global const T* w = wei + m * (KH * KW);
  const int y0 = oy * STRIDE_Y - PAD_Y, row = ((n * M + m) * OH + oy) * OW;
  const ACC bias = BIAS(m);
  int ox = 0;
  for (; ox < FIRST; ++ox) dst[row + ox] = (T)(POST(bias + single(s, w, y0, ox * STRIDE_X - PAD_X, IH, IW), row + ox));
  for (; ox + VEC <= LAST; ox += VEC) {
    VACC acc = (VACC)(bias);
#pragma unroll
    for (int ky = 0; ky < KH; ++ky) {
      const int y = y0 + ky * DILATION_Y;
      if (y >= 0 && y < IH)
#pragma unroll
        for (int kx = 0; kx < KW; ++kx)
          acc += (ACC)w[ky * KW + kx] * load(s + y * IW + ox * STRIDE_X - PAD_X + kx * DILATION_X);
      else
#pragma unroll
        for (int kx = 0; kx < KW; ++kx) acc += (ACC)w[ky * KW + kx] * (ACC)0;
    }
    VSTORE(POST_V(acc, row + ox), dst + row + ox);
  }
  for (; ox < OW; ++ox) dst[row + ox] = (T)(POST(bias + single(s, w, y0, ox * STRIDE_X - PAD_X, IH, IW), row + ox));
}
