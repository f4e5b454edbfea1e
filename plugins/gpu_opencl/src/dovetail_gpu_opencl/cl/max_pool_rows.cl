// Largest elements of windows in two dimensions for CPUs: dst[plane] = post(maximum of src[plane] over each window), NaN wins.
//
// A work item computes one row of output: vectors of VEC elements along x from FIRST up to LAST, where no window leaves the input
// to the left or right, single elements elsewhere.
// NDRange: (OH, planes, 1), local size 1.
//
// Layout: src [planes][IH][IW] and dst [planes][OH][OW] dense.
//
// Sizes of tensors are arguments, so that planes of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: VEC (at most 8, see capabilities.py).
#include "image_rows.cl"
#define LARGER(v, acc) ((v) > (acc) || (v) != (v) ? (v) : (acc))

static ACC single(__global const T* s, const int y0, const int x0, const int IH, const int IW) {
  ACC acc = -INFINITY;
  for (int ky = 0; ky < KH; ++ky) {
    const int y = y0 + ky * DILATION_Y;
    for (int kx = 0; kx < KW; ++kx) {
      const int x = x0 + kx * DILATION_X;
      if (y >= 0 && y < IH && x >= 0 && x < IW) {
        const ACC v = s[y * IW + x];
        acc = LARGER(v, acc);
      }
    }
  }
  return acc;
}

__kernel void max_pool_rows(__global const T* restrict src, __global T* dst, const int IH, const int IW, const int OH, const int OW,
                            const int PAD_Y, const int PAD_X, const int FIRST, const int LAST POST_ARGS) {
  const int oy = get_global_id(0), plane = get_global_id(1);
  __global const T* s = src + plane * (IH * IW);
  const int y0 = oy * STRIDE_Y - PAD_Y, row = (plane * OH + oy) * OW;
  int ox = 0;
  for (; ox < FIRST; ++ox) dst[row + ox] = (T)(POST(single(s, y0, ox * STRIDE_X - PAD_X, IH, IW), row + ox));
  for (; ox + VEC <= LAST; ox += VEC) {
    VACC acc = (VACC)(-INFINITY);
#pragma unroll
    for (int ky = 0; ky < KH; ++ky) {
      const int y = y0 + ky * DILATION_Y;
      if (y >= 0 && y < IH)
#pragma unroll
        for (int kx = 0; kx < KW; ++kx) {
          const VACC v = load(s + y * IW + ox * STRIDE_X - PAD_X + kx * DILATION_X);
          acc = LARGER(v, acc);
        }
    }
    VSTORE(POST_V(acc, row + ox), dst + row + ox);
  }
  for (; ox < OW; ++ox) dst[row + ox] = (T)(POST(single(s, y0, ox * STRIDE_X - PAD_X, IH, IW), row + ox));
}
