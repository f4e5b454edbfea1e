// dst[z][m][n] = post(bia[m] + sum over k of a[z][m][k] * b[z][k][n]), one element a work item.
//
// NDRange: (BATCH * M * N, rounded up to the local size).
//
// Layout: a is addressed by A_M, A_K; b by B_K, B_N (elements from one m, k or n to the next); dst is dense [batch][M][N]; bia
// [M].
// A_BATCH(z) and B_BATCH(z) give the first element of matrix z. The sizes, and A_Z and B_Z for these, are the arguments SIZES.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define A_BATCH(z) ((z) * A_Z)
#define B_BATCH(z) ((z) * B_Z)
#define SIZES , const int BATCH, const int K, const int A_M, const int A_K, const int A_Z, const int B_K, const int B_N, \
  const int B_Z, const int M, const uint M_factor, const int M_shift, const int N, const uint N_factor, const int N_shift
#endif
#include "post.cl"
#include "quotients.cl"

#ifdef HAS_BIAS
#define BIAS(row) ((ACC)LOAD_T(bia, row))
#else
#define BIAS(row) 0
#endif

__kernel void gemm_direct(__global const T* restrict a, __global const T* restrict b BIAS_ARG, __global T* dst SIZES POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= BATCH * M * N) return;
  const int row = QUOTIENT(o, N), z = QUOTIENT(row, M), n = o - row * N, m = row - z * M;
  a += A_BATCH(z) + m * A_M;
  b += B_BATCH(z) + n * B_N;
  ACC acc = BIAS(m);
  for (int k = 0; k < K; ++k) acc += (ACC)LOAD_T(a, k * A_K) * (ACC)LOAD_T(b, k * B_K);
  STORE_T(dst, o, POST(acc, o));
}
