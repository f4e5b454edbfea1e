// dst[z][m][n] = post(bia[m] + sum over k of a[z][m][k] * b[z][k][n]), for CPUs.
//
// A work item computes ROWS rows and COLS columns in vectors along n; scalars of a are broadcast. No local memory.
// NDRange: (ceil(M / ROWS), ceil(N / COLS), batch) with DOWN, otherwise the first two the other way round; local size 1.
//
// Layout: a is addressed by a_m and a_k (elements from row to row and from k to k), b by b_k from k to k and 1 from column to
// column, or with B_PACKED as blocks [ceil(N / COLS)][K][COLS] of ACC, padded with zeros. dst is dense [batch][M][N]; bia [M].
// A_BATCH(z) and B_BATCH(z) give the first element of matrix z, by default z * a_z and z * b_z. Sizes are arguments, so that
// products of all sizes share a program: drivers for CPUs take long to build one.
//
// A tile of a single row computes only that one: products of one row, whose second factor has to come from memory, are common.
//
// Without B_PACKED the last columns are computed in a block that starts COLS before the end and overlaps its neighbour; only
// the columns that are its own are stored. Where lines of b are shorter than a tile, vectors take in the next lines, which are not
// stored either; the last lines, behind which is nothing, are loaded one element at a time.
//
// Tunables: ROWS, VECTORS (their product in vector registers), DOWN. VEC is at most 8, see capabilities.py; COLS = VECTORS * VEC.
#ifndef T
#define T float
#define ACC float
#endif
#ifndef A_BATCH
#define A_BATCH(z) ((z) * a_z)
#endif
#ifndef B_BATCH
#define B_BATCH(z) ((z) * b_z)
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
#ifdef B_PACKED
#define B_TYPE ACC
#define LOAD_B VLOAD_ACC
#else
#define B_TYPE T
#define LOAD_B VLOAD
#endif
#ifdef HAS_BIAS
#define BIAS(row) ((ACC)bia[row])
#else
#define BIAS(row) 0
#endif

__kernel void gemm_rows(__global const T* restrict a, __global const B_TYPE* restrict b BIAS_ARG, __global T* dst,
                        const int M, const int N, const int K, const int a_m, const int a_k, const int b_k, const int a_z,
                        const int b_z, const int DOWN POST_ARGS) {
  // Both before the choice: PoCL 3.1 ends the process at a get_global_id whose dimension is chosen.
  const int i = get_global_id(0), j = get_global_id(1);
  const int block = DOWN ? j : i;
  const int col = block * COLS;
  const int row = (DOWN ? i : j) * ROWS;
  const int z = get_global_id(2);
#ifdef B_PACKED
  const int first = col;
  __global const ACC* bk = b + B_BATCH(z) + block * (K * COLS);
  const int step = COLS, whole = K;
#else
  const int first = max(min(col, N - COLS), 0);
  __global const T* bk = b + B_BATCH(z) + first;
  const int step = b_k, whole = N < COLS ? max(K - (COLS - N + b_k - 1) / max(b_k, 1), 0) : K;
#endif
  __global const T* ak[ROWS];
  VACC acc[ROWS][VECTORS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    ak[r] = a + A_BATCH(z) + min(row + r, M - 1) * a_m;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) acc[r][v] = (VACC)(BIAS(min(row + r, M - 1)));
  }
#if ROWS > 1
  if (row == M - 1) {
    for (int k = 0; k < whole; ++k) {
      const ACC x = ak[0][k * a_k];
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) acc[0][v] += x * LOAD_B(bk + v * VEC);
      bk += step;
    }
  } else
#endif
  for (int k = 0; k < whole; ++k) {
    VACC bv[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) bv[v] = LOAD_B(bk + v * VEC);
    bk += step;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const ACC x = ak[r][k * a_k];
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) acc[r][v] += x * bv[v];
    }
  }
#ifndef B_PACKED
  for (int k = whole; k < K; ++k) {
    ACC line[COLS] __attribute__((aligned(sizeof(VACC))));
    for (int c = 0; c < COLS; ++c) line[c] = (ACC)bk[min(c, N - 1)];
    bk += step;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const ACC x = ak[r][k * a_k];
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) acc[r][v] += x * *(VACC*)(line + v * VEC);
    }
  }
#endif
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int o = (z * M + row + r) * N + first;
    if (row + r >= M) {
    } else if (first == col && col + COLS <= N) {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) VSTORE(POST_V(acc[r][v], o + v * VEC), dst + o + v * VEC);
    } else {
      ACC s[COLS] __attribute__((aligned(sizeof(VACC))));
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) *(VACC*)(s + v * VEC) = acc[r][v];
      for (int c = col - first; c < COLS && first + c < N; ++c) dst[o + c] = (T)(POST(s[c], o + c));
    }
  }
}
