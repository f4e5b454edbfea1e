// Convolution in two dimensions with few output channels for CPUs: dst[n][m] = post(bia[m] + sum over c, ky, kx of src * wei).
//
// A work item computes one row of the MAPS output channels of a group: vectors of VEC pixels along x from FIRST up to LAST, where
// no window leaves the input to the left or right, single pixels, of all channels at once, elsewhere. Scalars of wei are
// broadcast. No local memory.
// NDRange: (OH, GROUPS, N), local size 1.
//
// Elements outside the input are zeros that are multiplied: an infinite weight gives NaN there.
//
// Layout: src and dst dense NCHW; wei as [GROUPS][C][KH][KW][MAPS] of ACC, where C is the number of input channels of a group;
// bia [M] of T.
//
// Sizes of tensors are arguments, so that planes of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: VEC (at most 8, see capabilities.py).
#ifndef MAPS
#define MAPS 4
#endif
#include "image_rows.cl"

// The sums of one pixel.
static void single(ACC* acc, __global const T* s, __global const ACC* w, const int y0, const int x0, const int C, const int IH,
                   const int IW) {
#pragma unroll
  for (int m = 0; m < MAPS; ++m) acc[m] = 0;
  for (int c = 0; c < C; ++c)
    for (int ky = 0; ky < KH; ++ky) {
      const int y = y0 + ky * DILATION_Y;
      for (int kx = 0; kx < KW; ++kx, w += MAPS) {
        const int x = x0 + kx * DILATION_X;
        const ACC value = y >= 0 && y < IH && x >= 0 && x < IW ? (ACC)s[(c * IH + y) * IW + x] : (ACC)0;
#pragma unroll
        for (int m = 0; m < MAPS; ++m) acc[m] += value * w[m];
      }
    }
}

__kernel void conv_columns(__global const T* restrict src, __global const ACC* restrict wei BIAS_ARG, __global T* dst,
                           const int GROUPS, const int C, const int M, const int IH, const int IW, const int OH, const int OW,
                           const int PAD_Y, const int PAD_X, const int FIRST, const int LAST POST_ARGS) {
  const int oy = get_global_id(0), group = get_global_id(1), n = get_global_id(2), first = group * MAPS;
  __global const T* s = src + (n * GROUPS + group) * C * (IH * IW);
  __global const ACC* w = wei + group * (C * KH * KW * MAPS);
  const int y0 = oy * STRIDE_Y - PAD_Y;
  const int whole = LAST - FIRST < VEC ? FIRST : LAST;
  for (int done = FIRST; done < whole; done += VEC) {
    // The last vector begins among pixels that are done: only the others are stored, as operands may be where dst is.
    const int ox = min(done, LAST - VEC);
    VACC acc[MAPS];
#pragma unroll
    for (int m = 0; m < MAPS; ++m) acc[m] = (VACC)(0);
    __global const ACC* wc = w;
    for (int c = 0; c < C; ++c)
      for (int ky = 0; ky < KH; ++ky) {
        const int y = y0 + ky * DILATION_Y;
        if (y >= 0 && y < IH) {
          __global const T* p = s + (c * IH + y) * IW + ox * STRIDE_X - PAD_X;
#pragma unroll
          for (int kx = 0; kx < KW; ++kx) {
            const VACC v = load(p + kx * DILATION_X);
#pragma unroll
            for (int m = 0; m < MAPS; ++m) acc[m] += wc[kx * MAPS + m] * v;
          }
        } else {
          for (int kx = 0; kx < KW; ++kx)
#pragma unroll
            for (int m = 0; m < MAPS; ++m) acc[m] += wc[kx * MAPS + m] * (ACC)0;
        }
        wc += KW * MAPS;
      }
#pragma unroll
    for (int m = 0; m < MAPS; ++m) {
      const int row = ((n * M + first + m) * OH + oy) * OW;
      if (ox == done) {
        VSTORE(POST_V(acc[m] + BIAS(first + m), row + ox), dst + row + ox);
      } else {
        ACC sums[VEC] __attribute__((aligned(sizeof(VACC))));
        *(VACC*)sums = acc[m];
        for (int o = row + done; o < row + LAST; ++o) dst[o] = (T)(POST(sums[o - row - ox] + BIAS(first + m), o));
      }
    }
  }
  for (int ox = 0; ox < OW; ++ox) {
    if (ox == FIRST) ox = whole;
    if (ox == OW) break;
    ACC acc[MAPS];
    single(acc, s, w, y0, ox * STRIDE_X - PAD_X, C, IH, IW);
    for (int m = 0; m < MAPS; ++m) {
      const int o = ((n * M + first + m) * OH + oy) * OW + ox;
      dst[o] = (T)(POST(acc[m] + BIAS(first + m), o));
    }
  }
}
