// Convolution in two dimensions for GPUs, as a matrix product: dst[n][m][p] = post(bia[m] + sum over k of wei[m][k] * src(k, p)).
//
// k counts the channels of a group and the kernel elements (c, ky, kx), p the output pixels of all images. A work group computes
// a tile of TILE_M channels x TILE_N pixels; slices of depth TILE_K go through local memory, where src is gathered (implicit
// im2col); a work item holds WORK_M x WORK_N results in registers.
// NDRange: (TILE_N / WORK_N * tiles, TILE_M / WORK_M * tiles, GROUPS), local size (TILE_N / WORK_N, TILE_M / WORK_M, 1).
//
// Layout: src and dst dense NCHW; wei dense [M][C][KH][KW], C the number of input channels of a group; bia [M].
//
// Tunables: TILE_M, TILE_N, TILE_K, WORK_M, WORK_N. Local memory: (TILE_M + TILE_N + 1) * TILE_K * sizeof(ACC).
#ifndef T
#define T float
#define ACC float
#define BATCH 1
#define GROUPS 1
#define C 1
#define M 1
#define IH 1
#define IW 1
#define OH 1
#define OW 1
#define KH 1
#define KW 1
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Y 1
#define DILATION_X 1
#define PAD_Y 0
#define PAD_X 0
#endif
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define TILE_K 16
#define WORK_M 4
#define WORK_N 4
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif
#ifdef HAS_BIAS
#define BIAS_ARG , __global const T* restrict bia
#else
#define BIAS_ARG
#endif
#define MG (M / GROUPS)
#define K (C * KH * KW)
#define P (OH * OW)
#define LOCAL_N (TILE_N / WORK_N)
#define LOCAL_M (TILE_M / WORK_M)
#define ITEMS (LOCAL_M * LOCAL_N)

__kernel __attribute__((reqd_work_group_size(LOCAL_N, LOCAL_M, 1))) void conv_tiled(
    __global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst POST_ARGS) {
  __local ACC tw[TILE_K][TILE_M + 1];
  __local ACC ts[TILE_K][TILE_N];
  const int lx = get_local_id(0), ly = get_local_id(1), item = ly * LOCAL_N + lx;
  const int p0 = get_group_id(0) * TILE_N, m0 = get_group_id(1) * TILE_M, group = get_global_id(2);
  ACC acc[WORK_M][WORK_N];
#pragma unroll
  for (int i = 0; i < WORK_M; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N; ++j) acc[i][j] = 0;

  for (int k0 = 0; k0 < K; k0 += TILE_K) {
    for (int e = item; e < TILE_M * TILE_K; e += ITEMS) {
      const int m = e / TILE_K, k = e % TILE_K;
      tw[k][m] = m0 + m < MG && k0 + k < K ? (ACC)wei[(group * MG + m0 + m) * K + k0 + k] : (ACC)0;
    }
    for (int e = item; e < TILE_N * TILE_K; e += ITEMS) {
      const int q = p0 + e % TILE_N, kk = k0 + e / TILE_N;
      const int n = q / P, p = q % P;
      const int c = kk / (KH * KW), ky = kk / KW % KH, kx = kk % KW;
      const int y = p / OW * STRIDE_Y - PAD_Y + ky * DILATION_Y, x = p % OW * STRIDE_X - PAD_X + kx * DILATION_X;
      const int inside = q < BATCH * P && kk < K && y >= 0 && y < IH && x >= 0 && x < IW;
      ts[e / TILE_N][e % TILE_N] = inside ? (ACC)src[(((n * GROUPS + group) * C + c) * IH + y) * IW + x] : (ACC)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int k = 0; k < TILE_K; ++k) {
      ACC wv[WORK_M], sv[WORK_N];
#pragma unroll
      for (int i = 0; i < WORK_M; ++i) wv[i] = tw[k][i * LOCAL_M + ly];
#pragma unroll
      for (int j = 0; j < WORK_N; ++j) sv[j] = ts[k][j * LOCAL_N + lx];
#pragma unroll
      for (int i = 0; i < WORK_M; ++i)
#pragma unroll
        for (int j = 0; j < WORK_N; ++j) acc[i][j] += wv[i] * sv[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int i = 0; i < WORK_M; ++i) {
    if (m0 + i * LOCAL_M + ly >= MG) break;
    const int m = group * MG + m0 + i * LOCAL_M + ly;
#ifdef HAS_BIAS
    const ACC bias = bia[m];
#else
    const ACC bias = 0;
#endif
#pragma unroll
    for (int j = 0; j < WORK_N; ++j) {
      const int q = p0 + j * LOCAL_N + lx;
      const int o = (q / P * M + m) * P + q % P;
      if (q < BATCH * P) dst[o] = (T)(POST(acc[i][j] + bias, o));
    }
  }
}
