// Depthwise convolution in two dimensions for CPUs: dst[n][m] = post(bia[m] + src[n][m / (M / C)] convolved with wei[m]).
//
// A work item computes one row of output: single elements where the window leaves the input, and vectors of VEC elements along
// x from FIRST up to LAST, where it does not leave it to the left or right. No local memory.
// NDRange: (OH, M, N), local size 1.
//
// Layout: src [N][C][IH][IW] and dst [N][M][OH][OW] dense; wei [M][KH][KW]; bia [M].
//
// Sizes of tensors are arguments, so that planes of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: VEC (at most 8, see capabilities.py).
#ifndef T
#define T float
#define ACC float
#define KH 1
#define KW 1
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Y 1
#define DILATION_X 1
#endif
#ifndef VEC
#define VEC 8
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#define POST_V(s, o) (s)
#endif
#ifdef HAS_BIAS
#define BIAS_ARG , __global const T* restrict bia
#else
#define BIAS_ARG
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define VACC CAT(ACC, VEC)
// Not vload and vstore: some drivers leave them as function calls, which spill every register.
typedef struct __attribute__((packed)) {
  CAT(T, VEC) v;
} PACKED;
#define VLOAD(p) CAT(convert_, VACC)(((__global const PACKED*)(p))->v)
#define VSTORE(x, p) (((__global PACKED*)(p))->v = CAT(CAT(convert_, T), VEC)(x))

static VACC load(__global const T* p) {
#if STRIDE_X == 1
  return VLOAD(p);
#else
  ACC v[VEC] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
  for (int i = 0; i < VEC; ++i) v[i] = p[i * STRIDE_X];
  return *(VACC*)v;
#endif
}

static ACC single(__global const T* s, __global const T* w, const int y0, const int x0, const int IH,
                  const int IW) {
  ACC acc = 0;
  for (int ky = 0; ky < KH; ++ky) {
    const int y = y0 + ky * DILATION_Y;
    if (y < 0 || y >= IH) continue;
    for (int kx = 0; kx < KW; ++kx) {
      const int x = x0 + kx * DILATION_X;
      if (x >= 0 && x < IW) acc += (ACC)s[y * IW + x] * (ACC)w[ky * KW + kx];
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
#ifdef HAS_BIAS
  const ACC bias = bia[m];
#else
  const ACC bias = 0;
#endif
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
    }
    VSTORE(POST_V(acc, row + ox), dst + row + ox);
  }
  for (; ox < OW; ++ox) dst[row + ox] = (T)(POST(bias + single(s, w, y0, ox * STRIDE_X - PAD_X, IH, IW), row + ox));
}
