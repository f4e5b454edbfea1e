// dst[z][m][n] = post(sum over k of a[z][m][k] * b[z][k][n]), for CPUs.
//
// A work item computes ROWS rows and COLS columns in vectors along n; scalars of a are broadcast. No local memory.
// NDRange: (ceil(N / COLS), ceil(M / ROWS), batch), local size 1.
//
// Layout: a is addressed by A_M and A_K (elements from row to row and from k to k), b by B_K from k to k and 1 from column to
// column, or with B_PACKED as blocks [ceil(N / COLS)][K][COLS] of ACC, padded with zeros. dst is dense [batch][M][N].
// A_BATCH(z) and B_BATCH(z) give the first element of matrix z.
//
// Without B_PACKED the last columns are computed in a block that starts COLS before the end and overlaps its neighbour; only
// the columns that are its own are stored. N must be at least COLS then.
//
// Tunables: ROWS; VEC (at most 8, see capabilities.py); COLS = 2 * VEC.
#ifndef T
#define T float
#define ACC float
#define M 6
#define N 16
#define K 1
#define A_M K
#define A_K 1
#define A_BATCH(z) 0
#define B_K N
#define B_BATCH(z) 0
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
#define VACC CAT(ACC, VEC)
#define VLOAD(p) CAT(convert_, VACC)(CAT(vload, VEC)(0, p))
#define VSTORE(v, p) CAT(vstore, VEC)(CAT(CAT(convert_, T), VEC)(v), 0, p)
#define COLS (2 * VEC)
#ifdef B_PACKED
#define B_TYPE ACC
#else
#define B_TYPE T
#endif

__kernel void gemm_rows(__global const T* restrict a, __global const B_TYPE* restrict b, __global T* dst POST_ARGS) {
  const int col = get_global_id(0) * COLS;
  const int row = get_global_id(1) * ROWS;
  const int z = get_global_id(2);
#ifdef B_PACKED
  const int first = col;
  __global const ACC* bk = b + B_BATCH(z) + get_global_id(0) * (K * COLS);
  const int step = COLS;
#else
  const int first = min(col, N - COLS);
  __global const T* bk = b + B_BATCH(z) + first;
  const int step = B_K;
#endif
  __global const T* ak[ROWS];
  VACC lo[ROWS], hi[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    ak[r] = a + A_BATCH(z) + min(row + r, M - 1) * A_M;
    lo[r] = (VACC)(0);
    hi[r] = (VACC)(0);
  }
  for (int k = 0; k < K; ++k) {
    const VACC b0 = VLOAD(bk), b1 = VLOAD(bk + VEC);
    bk += step;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const ACC x = ak[r][k * A_K];
      lo[r] += x * b0;
      hi[r] += x * b1;
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (row + r >= M) break;
    const int o = (z * M + row + r) * N + first;
    if (first == col && col + COLS <= N) {
      VSTORE(POST_V(lo[r], o), dst + o);
      VSTORE(POST_V(hi[r], o + VEC), dst + o + VEC);
    } else {
      ACC s[COLS];
      CAT(vstore, VEC)(lo[r], 0, s);
      CAT(vstore, VEC)(hi[r], 0, s + VEC);
      for (int c = col - first; c < COLS && first + c < N; ++c) dst[o + c] = (T)(POST(s[c], o + c));
    }
  }
}
