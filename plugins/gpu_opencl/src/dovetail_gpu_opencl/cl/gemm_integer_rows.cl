// dst[z][m][n] = result of the sum over k of (a[z][m][k] - A_ZERO) * (b[z][k][n] - B_ZERO), exact, for 8-bit a and b, on CPUs.
//
// A work item computes ROWS rows and COLS columns in vectors along n. Products are added in float, CHUNK of them at most: their sum
// is a whole number below 2^24 (CHUNK * 255 * 255), which float holds exactly. The sums of chunks are added in int, which wraps.
// The rows of a are converted once for all columns. No local memory.
// NDRange: (ceil(N / COLS), ceil(M / ROWS), batch), local size 1.
//
// Layout: a and dst are dense matrices [M][K] and [M][N]; b is dense [K][N], or with B_PACKED blocks [ceil(N / COLS)][K][COLS] of
// B (float), with the zero points subtracted and padded with zeros. A_BATCH(z) and B_BATCH(z) give the first element of matrix z.
// A_ZERO(z, m) and B_ZERO(z, n) are the zero points of a row of a and of b, read from a_zero and b_zero, which may be NULL.
// STORE_SUM(o, s, z, m, n) makes element o of dst of the sum s, STORE_SUMS(o, sums), which need not be, a vector from there on;
// RESULT_ARGS is what they read (see kernels/_integer.py).
//
// Without B_PACKED the last columns are computed in a block that starts COLS before the end and overlaps its neighbour; only
// the columns that are its own are stored. N must be at least COLS then.
//
// Tunables: ROWS; VEC (at most 8, see capabilities.py); COLS = 2 * VEC.
#ifndef A
#define A uchar
#define B char
#define ZERO char
#define T int
#define A_BATCH(z) 0
#define B_BATCH(z) 0
#define A_ZERO(z, m) 0
#define B_ZERO(z, n) 0
#define RESULT_ARGS
#define STORE_SUM(o, s, z, m, n) (dst[o] = (s))
#endif
#ifndef ROWS
#define ROWS 6
#endif
#ifndef VEC
#define VEC 8
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#define POST_V(s, o) (s)
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define VFLOAT CAT(float, VEC)
#define VINT CAT(int, VEC)
#define COLS (2 * VEC)
#define CHUNK 256
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  CAT(A, VEC) v;
} PACKED_A;
typedef struct __attribute__((packed)) {
  CAT(B, VEC) v;
} PACKED;
typedef struct __attribute__((packed)) {
  CAT(T, VEC) v;
} PACKED_T;
#define VLOAD(p) CAT(convert_, VFLOAT)(((__global const PACKED*)(p))->v)

__kernel void gemm_integer_rows(__global const A* restrict a, __global const B* restrict b, __global const A* restrict a_zero,
                                __global const ZERO* restrict b_zero, __global T* dst, const int M, const int N,
                                const int K RESULT_ARGS POST_ARGS) {
  const int col = get_global_id(0) * COLS;
  const int row = get_global_id(1) * ROWS;
  const int z = get_global_id(2);
#ifdef B_PACKED
  const int first = col, step = COLS;
  __global const B* bk = b + B_BATCH(z) + get_global_id(0) * (K * COLS);
  const float right = 0;
#else
  const int first = min(col, N - COLS), step = N;
  __global const B* bk = b + B_BATCH(z) + first;
  const float right = B_ZERO(z, first);
#endif
  VINT low[ROWS], high[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) low[r] = high[r] = (VINT)(0);
  for (int k0 = 0; k0 < K; k0 += CHUNK) {
    const int depth = min(CHUNK, K - k0);
    float x[ROWS][CHUNK] __attribute__((aligned(sizeof(VFLOAT))));
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int m = min(row + r, M - 1);
      __global const A* ak = a + A_BATCH(z) + m * K + k0;
      const float left = A_ZERO(z, m);
      int k = 0;
      for (; k + VEC <= depth; k += VEC)
        *(VFLOAT*)(x[r] + k) = CAT(convert_, VFLOAT)(((__global const PACKED_A*)(ak + k))->v) - left;
      for (; k < depth; ++k) x[r][k] = ak[k] - left;
    }
    VFLOAT lo[ROWS], hi[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) lo[r] = hi[r] = (VFLOAT)(0);
    for (int k = 0; k < depth; ++k) {
      const VFLOAT b0 = VLOAD(bk) - right, b1 = VLOAD(bk + VEC) - right;
      bk += step;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        lo[r] += x[r][k] * b0;
        hi[r] += x[r][k] * b1;
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      low[r] += CAT(convert_, VINT)(lo[r]);
      high[r] += CAT(convert_, VINT)(hi[r]);
    }
  }
  for (int r = 0; r < ROWS && row + r < M; ++r) {
#ifdef STORE_SUMS
    if (first == col && col + COLS <= N) {
      STORE_SUMS((z * M + row + r) * N + col, low[r]);
      STORE_SUMS((z * M + row + r) * N + col + VEC, high[r]);
      continue;
    }
#endif
    int s[COLS] __attribute__((aligned(sizeof(VINT))));
    *(VINT*)s = low[r];
    *(VINT*)(s + VEC) = high[r];
    for (int c = col - first; c < COLS && first + c < N; ++c)
      STORE_SUM((z * M + row + r) * N + first + c, s[c], z, row + r, first + c);
  }
}
