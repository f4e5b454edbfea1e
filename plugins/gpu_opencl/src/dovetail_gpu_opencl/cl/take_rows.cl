// dst[i][k] = q[k][n] * scale + offset with n = index[i]: columns of a matrix in blocks, as rows, for GPUs.
//
// For an index that is not from 0 to N - 1, column 0 is read and faults[fault] set to 1.
// NDRange: (COUNT * K, rounded up to the local size).
//
// Layout: dst [COUNT][K], the matrix as in blocks_plain.cl, with N columns.
//
// Tunables: the local size.
#ifndef N
#define N 1
#define K 1
#define COUNT 1
#define INDEX long
#endif
#include "blocks_plain.cl"

__kernel void take_rows(__global const INDEX* restrict index, MATRIX_ARGS, __global float* restrict dst,
                        __global int* faults, const int fault) {
  const int o = get_global_id(0);
  if (o >= COUNT * K) return;
  const int k = o % K, block = k / SIZE, row = k % SIZE;
  INDEX n = index[o / K];
  if (n < 0 || n >= N) {
    faults[fault] = 1;
    n = 0;
  }
  __global const Q* p = MATRIX_Q + (size_t)(block * HEIGHT + row % HEIGHT) * N;
#if BITS == 4
  const float x = row < HEIGHT ? p[n] & 15 : p[n] >> 4;
#else
  const float x = LOAD_Q(p, n);
#endif
  const int at = block * N + (int)n;
#ifdef HAS_OFFSETS
  dst[o] = x * MATRIX_SCALES[at] + MATRIX_OFFSETS[at];
#else
  dst[o] = x * MATRIX_SCALES[at];
#endif
}
