// Convolution in two dimensions, with SPACE in three, for CPUs: dst[n][m][p] = post(bia[m] + sum over c, kz, ky, kx of src *
// wei).
//
// A work item computes ROWS output pixels of one image (p counts a plane row by row, planes one by one) for COLS output channels
// of one group, in vectors along the channels; scalars of src are broadcast. No local memory.
// NDRange: (ceil(OD * OH * OW / ROWS), ceil(M / GROUPS / COLS) * GROUPS, N) with DOWN, otherwise the first two the other way
// round; local size 1.
//
// Layout: src and dst dense NCDHW; wei packed as [GROUPS][ceil(M / GROUPS / COLS)][KD][KH][KW][C][COLS] of ACC, padded with
// zeros, where C is the number of input channels of a group; bia [M] of T.
//
// A tile of a single pixel computes only that one: images of one pixel are common behind global pooling.
//
// Sizes are arguments, so that convolutions of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: ROWS, VECTORS (their product in vector registers), DOWN. VEC is at most 8, see capabilities.py; COLS = VECTORS * VEC.
#ifndef T
#define T float
#define ACC float
#endif
#ifndef ROWS
#define ROWS 4
#define VECTORS 3
#endif
#ifndef VEC
#define VEC 8
#endif
#include "post.cl"
#include "vectors.cl"
#define COLS (VECTORS * VEC)
#ifdef SPACE
#define SPACE_ARGS , const int ID, const int OD, const int KD, const int STRIDE_Z, const int DILATION_Z, const int PAD_Z
#define PIXELS (OD * OH * OW)
#define PLANE (ID * IH * IW)
#else
#define SPACE_ARGS
#define KD 1
#define PIXELS (OH * OW)
#define PLANE (IH * IW)
#endif

__kernel void conv_rows(__global const T* restrict src, __global const ACC* restrict wei BIAS_ARG, __global T* dst,
                        const int GROUPS, const int C, const int M, const int IH, const int IW, const int OH, const int OW,
                        const int KH, const int KW, const int STRIDE_Y, const int STRIDE_X, const int DILATION_Y,
                        const int DILATION_X, const int PAD_Y, const int PAD_X, const int DOWN SPACE_ARGS POST_ARGS) {
  const int MG = M / GROUPS, BLOCKS = (MG + COLS - 1) / COLS;
  // Both before the choice: PoCL 3.1 ends the process at a get_global_id whose dimension is chosen.
  const int i = get_global_id(0), j = get_global_id(1);
  const int pixel = (DOWN ? i : j) * ROWS;
  const int block = DOWN ? j : i;
  const int n = get_global_id(2);
  const int group = block / BLOCKS, m0 = (block % BLOCKS) * COLS;
  const int plane = (n * GROUPS + group) * C * PLANE;
  __global const ACC* w = wei + block * (KD * KH * KW * C * COLS);
  int y0[ROWS], x0[ROWS];
#ifdef SPACE
  int z0[ROWS];
#endif
  VACC acc[ROWS][VECTORS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int p = min(pixel + r, PIXELS - 1);
#ifdef SPACE
    z0[r] = p / (OH * OW) * STRIDE_Z - PAD_Z;
    y0[r] = p / OW % OH * STRIDE_Y - PAD_Y;
#else
    y0[r] = p / OW * STRIDE_Y - PAD_Y;
#endif
    x0[r] = p % OW * STRIDE_X - PAD_X;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) acc[r][v] = (VACC)(0);
  }
#ifdef SPACE
  for (int kz = 0; kz < KD; ++kz)
#endif
  for (int ky = 0; ky < KH; ++ky)
    for (int kx = 0; kx < KW; ++kx) {
      int at[ROWS];
      int inside[ROWS];
      int all = 1;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int y = y0[r] + ky * DILATION_Y, x = x0[r] + kx * DILATION_X;
        inside[r] = y >= 0 && y < IH && x >= 0 && x < IW;
        at[r] = inside[r] ? plane + y * IW + x : plane;
#ifdef SPACE
        const int z = z0[r] + kz * DILATION_Z;
        inside[r] &= z >= 0 && z < ID;
        at[r] += inside[r] ? z * (IH * IW) : plane - at[r];
#endif
        all &= inside[r];
      }
#if ROWS > 1
      if (pixel == PIXELS - 1) {
        for (int c = 0; c < C; ++c) {
          const ACC x = inside[0] ? (ACC)src[at[0] + c * PLANE] : (ACC)0;
#pragma unroll
          for (int v = 0; v < VECTORS; ++v) acc[0][v] += x * VLOAD_ACC(w + v * VEC);
          w += COLS;
        }
      } else
#endif
      if (all) {
        for (int c = 0; c < C; ++c) {
          VACC wv[VECTORS];
#pragma unroll
          for (int v = 0; v < VECTORS; ++v) wv[v] = VLOAD_ACC(w + v * VEC);
          w += COLS;
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const ACC x = src[at[r] + c * PLANE];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) acc[r][v] += x * wv[v];
          }
        }
      } else {
        for (int c = 0; c < C; ++c) {
          VACC wv[VECTORS];
#pragma unroll
          for (int v = 0; v < VECTORS; ++v) wv[v] = VLOAD_ACC(w + v * VEC);
          w += COLS;
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const ACC x = inside[r] ? (ACC)src[at[r] + c * PLANE] : (ACC)0;
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) acc[r][v] += x * wv[v];
          }
        }
      }
    }
  ACC s[ROWS][COLS] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) *(VACC*)(s[r] + v * VEC) = acc[r][v];
  const int rows = min(ROWS, PIXELS - pixel), cols = min(COLS, MG - m0);
  for (int c = 0; c < cols; ++c) {
    const int m = group * MG + m0 + c;
#ifdef HAS_BIAS
    const ACC bias = bia[m];
#else
    const ACC bias = 0;
#endif
    for (int r = 0; r < rows; ++r) {
      const int o = (n * M + m) * PIXELS + pixel + r;
      dst[o] = (T)(POST(s[r][c] + bias, o));
    }
  }
}
