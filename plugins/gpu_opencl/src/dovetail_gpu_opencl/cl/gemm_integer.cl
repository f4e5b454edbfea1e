// dst[z][m][n] = result of the sum over k of (a[z][m][k] - A_ZERO) * (b[z][k][n] - B_ZERO), exact, for 8-bit a and b.
//
// A work item computes one element in int, which wraps.
// NDRange: (BATCH * M * N, rounded up to the local size).
//
// Layout: a, b and dst are dense matrices [M][K], [K][N], [M][N]; A_BATCH(z) and B_BATCH(z) give the first element of matrix z.
// A_ZERO(z, m) and B_ZERO(z, n) are the zero points of a row of a and a column of b, read from a_zero and b_zero, which may be
// NULL.
// Sizes are arguments. STORE_SUM(o, s, z, m, n) makes element o of dst of the sum s; RESULT_ARGS is what it reads (see
// kernels/_integer.py).
//
// Tunables: the local size.
#ifndef A
#define A uchar
#define B char
#define T int
#define A_BATCH(z) 0
#define B_BATCH(z) 0
#define A_ZERO(z, m) 0
#define B_ZERO(z, n) 0
#define RESULT_ARGS
#define STORE_SUM(o, s, z, m, n) (dst[o] = (s))
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif

__kernel void gemm_integer(__global const A* restrict a, __global const B* restrict b, __global const A* restrict a_zero,
                           __global const B* restrict b_zero, __global T* dst, const int BATCH, const int M, const int N,
                           const int K RESULT_ARGS POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= BATCH * M * N) return;
  const int n = o % N, m = o / N % M, z = o / (M * N);
  const int left = A_ZERO(z, m), right = B_ZERO(z, n);
  a += A_BATCH(z) + m * K;
  b += B_BATCH(z) + n;
  int sum = 0;
  for (int k = 0; k < K; ++k) sum += (a[k] - left) * (b[k * N] - right);
  STORE_SUM(o, sum, z, m, n);
}
