// dst[z][m][n] = post(bia[m] + sum over k of a[z][m][k] * b[z][k][n]), for GPUs.
//
// A work group computes a tile of TILE_M x TILE_N; slices of a and b of depth TILE_K go through local memory; a work item holds
// WORK_M x WORK_N results in registers, spaced by the group's size so that neighbours read and write neighbours.
// NDRange: (TILE_N / WORK_N * tiles, TILE_M / WORK_M * tiles, batch), local size (TILE_N / WORK_N, TILE_M / WORK_M, 1).
//
// Layout: a is addressed by A_M, A_K; b by B_K, B_N (elements from one m, k or n to the next); dst is dense [batch][M][N]; bia [M].
// A_BATCH(z) and B_BATCH(z) give the first element of matrix z.
//
// Tunables: TILE_M, TILE_N, TILE_K, WORK_M, WORK_N. Local memory: (TILE_M + TILE_N) * (TILE_K + 1) * sizeof(ACC).
#ifndef T
#define T float
#define ACC float
#define M 1
#define N 1
#define K 1
#define A_M K
#define A_K 1
#define A_BATCH(z) 0
#define B_K N
#define B_N 1
#define B_BATCH(z) 0
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
#define LOCAL_N (TILE_N / WORK_N)
#define LOCAL_M (TILE_M / WORK_M)
#define ITEMS (LOCAL_M * LOCAL_N)

#ifdef HAS_BIAS
#define BIAS_ARG , __global const T* restrict bia
#define BIAS(row) ((ACC)bia[row])
#else
#define BIAS_ARG
#define BIAS(row) 0
#endif

__kernel __attribute__((reqd_work_group_size(LOCAL_N, LOCAL_M, 1))) void gemm_tiled(
    __global const T* restrict a, __global const T* restrict b BIAS_ARG, __global T* dst POST_ARGS) {
  __local ACC ta[TILE_K][TILE_M + 1];
  __local ACC tb[TILE_K][TILE_N + 1];
  const int lx = get_local_id(0), ly = get_local_id(1), item = ly * LOCAL_N + lx;
  const int n0 = get_group_id(0) * TILE_N, m0 = get_group_id(1) * TILE_M, z = get_global_id(2);
  a += A_BATCH(z);
  b += B_BATCH(z);
  ACC acc[WORK_M][WORK_N];
#pragma unroll
  for (int i = 0; i < WORK_M; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N; ++j) acc[i][j] = BIAS(min(m0 + i * LOCAL_M + ly, M - 1));

  for (int k0 = 0; k0 < K; k0 += TILE_K) {
    for (int e = item; e < TILE_M * TILE_K; e += ITEMS) {
      // Whichever of m and k lies densely in memory runs over neighbouring work items.
      const int m = A_K == 1 ? e / TILE_K : e % TILE_M, k = A_K == 1 ? e % TILE_K : e / TILE_M;
      ta[k][m] = m0 + m < M && k0 + k < K ? (ACC)a[(m0 + m) * A_M + (k0 + k) * A_K] : (ACC)0;
    }
    for (int e = item; e < TILE_N * TILE_K; e += ITEMS) {
      const int n = B_N == 1 ? e % TILE_N : e / TILE_K, k = B_N == 1 ? e / TILE_N : e % TILE_K;
      tb[k][n] = n0 + n < N && k0 + k < K ? (ACC)b[(k0 + k) * B_K + (n0 + n) * B_N] : (ACC)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int k = 0; k < TILE_K; ++k) {
      ACC av[WORK_M], bv[WORK_N];
#pragma unroll
      for (int i = 0; i < WORK_M; ++i) av[i] = ta[k][i * LOCAL_M + ly];
#pragma unroll
      for (int j = 0; j < WORK_N; ++j) bv[j] = tb[k][j * LOCAL_N + lx];
#pragma unroll
      for (int i = 0; i < WORK_M; ++i)
#pragma unroll
        for (int j = 0; j < WORK_N; ++j) acc[i][j] += av[i] * bv[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int i = 0; i < WORK_M; ++i) {
    const int m = m0 + i * LOCAL_M + ly;
    if (m >= M) break;
#pragma unroll
    for (int j = 0; j < WORK_N; ++j) {
      const int n = n0 + j * LOCAL_N + lx;
      const int o = (z * M + m) * N + n;
      if (n < N) dst[o] = (T)(POST(acc[i][j], o));
    }
  }
}
