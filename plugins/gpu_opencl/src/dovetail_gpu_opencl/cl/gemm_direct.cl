// dst[z][m][n] = post(bia[m] + sum over k of a[z][m][k] * b[z][k][n]), one element a work item.
//
// NDRange: (BATCH * M * N, rounded up to the local size).
//
// Layout: a is addressed by A_M, A_K; b by B_K, B_N (elements from one m, k or n to the next); dst is dense [batch][M][N]; bia [M].
// A_BATCH(z) and B_BATCH(z) give the first element of matrix z.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define BATCH 1
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
#include "post.cl"

#ifdef HAS_BIAS
#define BIAS(row) ((ACC)LOAD_T(bia, row))
#else
#define BIAS(row) 0
#endif

__kernel void gemm_direct(__global const T* restrict a, __global const T* restrict b BIAS_ARG, __global T* dst POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= BATCH * M * N) return;
  const int n = o % N, m = o / N % M, z = o / (M * N);
  a += A_BATCH(z) + m * A_M;
  b += B_BATCH(z) + n * B_N;
  ACC acc = BIAS(m);
  for (int k = 0; k < K; ++k) acc += (ACC)LOAD_T(a, k * A_K) * (ACC)LOAD_T(b, k * B_K);
  STORE_T(dst, o, POST(acc, o));
}
