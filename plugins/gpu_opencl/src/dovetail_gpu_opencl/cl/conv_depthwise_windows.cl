// Depthwise convolution in two dimensions for GPUs: dst[n][m] = post(bia[m] + src[n][m / (M / C)] convolved with wei[m]).
//
// A work item computes VEC elements that follow each other along x. It first loads all that their windows see, from places within
// the plane, so that no load waits for another one or for a branch; elements outside count as zero.
// NDRange: (OH * ceil(OW / VEC) rounded up to the local size, M, N), local size (GROUP, 1, 1).
//
// Layout: src [N][C][IH][IW] and dst [N][M][OH][OW] dense; wei [M][KH][KW]; bia [M].
//
// Tunables: VEC, 1, 2 or 4, which divides OW; GROUP. Registers: KH * ((VEC - 1) * STRIDE_X + KW) elements of ACC.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define C 1
#define M 1
#endif
#include "windows.cl"
#ifndef VEC
#define VEC 1
#define GROUP 64
#endif
#include "post.cl"
#define WIDTH ((VEC - 1) * STRIDE_X + (KW - 1) * DILATION_X + 1)
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#if VEC == 1
#define STORE(v, p) STORE_T(p, 0, (v)[0])
#elif defined(T_IS_HALF)
#define STORE(v, p) CAT(CAT(vstorea_half, VEC), _rte)(*(CAT(float, VEC)*)(v), 0, p)
#elif defined(T_IS_BFLOAT16)
#define STORE(v, p)                                                        \
  {                                                                        \
    ushort bits[VEC] __attribute__((aligned(8)));                          \
    _Pragma("unroll") for (int e = 0; e < VEC; ++e) bits[e] = to_bfloat16((v)[e]); \
    *(__global CAT(ushort, VEC)*)(p) = *(CAT(ushort, VEC)*)bits;           \
  }
#else
#define STORE(v, p) (*(__global CAT(T, VEC)*)(p) = CAT(convert_, CAT(T, VEC))(*(CAT(ACC, VEC)*)(v)))
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_depthwise_windows(
    __global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst SIZES POST_ARGS) {
  const int place = get_global_id(0), m = get_global_id(1), n = get_global_id(2);
  const int oy = place / (OW / VEC), ox = place % (OW / VEC) * VEC;
  if (oy >= OH) return;
  const int y0 = oy * STRIDE_Y - PAD_Y, x0 = ox * STRIDE_X - PAD_X;
  __global const T* s = src + (n * C + m / (M / C)) * (IH * IW);
  __global const T* w = wei + m * (KH * KW);
  ACC seen[KH][WIDTH], weights[KH][KW];
#pragma unroll
  for (int ky = 0; ky < KH; ++ky) {
    const int y = y0 + ky * DILATION_Y, row = clamp(y, 0, IH - 1) * IW;
#pragma unroll
    for (int x = 0; x < WIDTH; ++x) {
      const ACC value = LOAD_T(s, row + clamp(x0 + x, 0, IW - 1));
      seen[ky][x] = y >= 0 && y < IH && x0 + x >= 0 && x0 + x < IW ? value : (ACC)0;
    }
#pragma unroll
    for (int kx = 0; kx < KW; ++kx) weights[ky][kx] = LOAD_T(w, ky * KW + kx);
  }
#ifdef HAS_BIAS
  const ACC bias = LOAD_T(bia, m);
#else
  const ACC bias = 0;
#endif
  const int o = ((n * M + m) * OH + oy) * OW + ox;
  ACC v[VEC] __attribute__((aligned(32)));
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    ACC acc = bias;
#pragma unroll
    for (int ky = 0; ky < KH; ++ky)
#pragma unroll
      for (int kx = 0; kx < KW; ++kx) acc = fma(seen[ky][i * STRIDE_X + kx * DILATION_X], weights[ky][kx], acc);
    v[i] = POST(acc, o + i);
  }
  STORE(v, dst + o);
}
