// Convolution by windows of 3 x 3 in steps of 1 for CPUs, by the algorithm F(2x2, 3x3) of Winograd (Lavin and Gray, 2016): tiles
// of 2 x 2 results are made of 16 products for each pair of channels in place of 36. Four launches: winograd_pad, winograd_input,
// the products by gemm_rows.cl, and winograd_output. TH x TW tiles cover an image; tiles of all images are counted through, TILES
// in all.
//
// winograd_pad: src [planes][IH][IW] of T into pad [planes][PH][PW] of ACC, with zeros round it.
// NDRange: (PH, planes), local size 1.
//
// winograd_input: pad [N][C][PH][PW] into dst [16][C][TILES] of ACC: element (i, j) of B' d B for each tile. PW is at least 18.
// NDRange: (TH, C, N), local size 1.
//
// winograd_output: src [16][TILES][M] of ACC into dst [N][M][OH][OW] of T: post(bia[m] + A' m A). M is at least VEC.
// NDRange: (TH, ceil(M / VEC), N), local size 1.
//
// All in vectors: of tiles along x on the way in, of channels on the way out.
//
// Tunables: VEC (at most 8, see capabilities.py).
#ifndef T
#define T float
#define ACC float
#define VEC 8
#define EVEN(a, b) ((float8)((a).s0, (a).s2, (a).s4, (a).s6, (b).s0, (b).s2, (b).s4, (b).s6))
#define ODD(a, b) ((float8)((a).s1, (a).s3, (a).s5, (a).s7, (b).s1, (b).s3, (b).s5, (b).s7))
#endif
#include "post.cl"
#ifdef HAS_BIAS
#define BIAS(m) ((ACC)bia[m])
#else
#define BIAS(m) ((ACC)0)
#endif
#include "vectors.cl"

__kernel void winograd_pad(__global const T* restrict src, __global ACC* dst, const int IH, const int IW, const int PAD_Y,
                           const int PAD_X, const int PH, const int PW) {
  const int row = get_global_id(0), plane = get_global_id(1), y = row - PAD_Y;
  __global ACC* d = dst + (plane * PH + row) * PW;
  if (y < 0 || y >= IH) {
    for (int x = 0; x < PW; ++x) d[x] = 0;
    return;
  }
  __global const T* s = src + (plane * IH + y) * IW;
  const int end = min(PAD_X + IW, PW);
  for (int x = 0; x < PAD_X; ++x) d[x] = 0;
  for (int x = PAD_X; x < end; ++x) d[x] = (ACC)s[x - PAD_X];
  for (int x = end; x < PW; ++x) d[x] = 0;
}

__kernel void winograd_input(__global const ACC* restrict src, __global ACC* dst, const int C, const int PH, const int PW,
                             const int TH, const int TW, const int TILES) {
  const int ty = get_global_id(0), c = get_global_id(1), n = get_global_id(2);
  __global const ACC* s = src + ((n * C + c) * PH + 2 * ty) * PW;
  __global ACC* row = dst + c * TILES + (n * TH + ty) * TW;
  const int next = C * TILES;
  for (int x = 0; x < TW; x += VEC) {
    const int tx = max(0, min(x, TW - VEC));
    VACC d[4][4], e[4][4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      __global const ACC* p = s + r * PW + 2 * tx;
      const VACC l0 = VLOAD_ACC(p), l1 = VLOAD_ACC(p + VEC), h0 = VLOAD_ACC(p + 2), h1 = VLOAD_ACC(p + VEC + 2);
      d[r][0] = EVEN(l0, l1);
      d[r][1] = ODD(l0, l1);
      d[r][2] = EVEN(h0, h1);
      d[r][3] = ODD(h0, h1);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      e[0][k] = d[0][k] - d[2][k];
      e[1][k] = d[1][k] + d[2][k];
      e[2][k] = d[2][k] - d[1][k];
      e[3][k] = d[1][k] - d[3][k];
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      d[r][0] = e[r][0] - e[r][2];
      d[r][1] = e[r][1] + e[r][2];
      d[r][2] = e[r][2] - e[r][1];
      d[r][3] = e[r][1] - e[r][3];
    }
    if (TW >= VEC) {
#pragma unroll
      for (int i = 0; i < 16; ++i) VSTORE_ACC(d[i / 4][i % 4], row + tx + i * next);
    } else {
      ACC v[16][VEC] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
      for (int i = 0; i < 16; ++i) *(VACC*)v[i] = d[i / 4][i % 4];
      for (int i = 0; i < 16; ++i)
        for (int t = 0; t < TW; ++t) row[t + i * next] = v[i][t];
    }
  }
}

__kernel void winograd_output(__global const ACC* restrict src BIAS_ARG, __global T* dst, const int M, const int OH, const int OW,
                              const int TH, const int TW, const int TILES POST_ARGS) {
  const int ty = get_global_id(0), map = get_global_id(1) * VEC, n = get_global_id(2), first = min(map, M - VEC);
  __global const ACC* s = src + (n * TH + ty) * TW * M + first;
  const int next = TILES * M;
  for (int tx = 0; tx < TW; ++tx) {
    VACC p[4][4], e[2][4];
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i / 4][i % 4] = VLOAD_ACC(s + tx * M + i * next);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      e[0][k] = p[0][k] + p[1][k] + p[2][k];
      e[1][k] = p[1][k] - p[2][k] - p[3][k];
    }
    ACC v[4][VEC] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      *(VACC*)v[2 * r] = e[r][0] + e[r][1] + e[r][2];
      *(VACC*)v[2 * r + 1] = e[r][1] - e[r][2] - e[r][3];
    }
    for (int l = map - first; l < VEC; ++l) {
      const ACC bias = BIAS(first + l);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int y = 2 * ty + i / 2, x = 2 * tx + i % 2, o = ((n * M + first + l) * OH + y) * OW + x;
        if (y < OH && x < OW) dst[o] = (T)(POST(v[i][l] + bias, o));
      }
    }
  }
}
