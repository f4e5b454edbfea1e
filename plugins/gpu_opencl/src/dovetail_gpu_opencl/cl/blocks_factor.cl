// The second factor of tiles.cl as a matrix in blocks, unpacked where it is loaded: LOAD_B is B_V columns of row k.
#ifndef WIDE
#include "product.cl"
#endif
#include "blocks_plain.cl"
#define B_ARG MATRIX_ARGS
#define B_COLUMN(n) min(n0 + n, (N + B_V - 1) / B_V * B_V - B_V)
#define PARAMETERS(p, n, k) (*(__global const WIDE(float, B_V)*)((p) + (k) / SIZE * N + B_COLUMN(n)))
#ifdef HAS_OFFSETS
#define LOAD_B(n, k) (numbers(MATRIX_Q, B_COLUMN(n), k) * PARAMETERS(MATRIX_SCALES, n, k) + PARAMETERS(MATRIX_OFFSETS, n, k))
#else
#define LOAD_B(n, k) (numbers(MATRIX_Q, B_COLUMN(n), k) * PARAMETERS(MATRIX_SCALES, n, k))
#endif

static inline WIDE(float, B_V) numbers(__global const Q* restrict q, const int n, const int k) {
  const int r = k % SIZE;
  __global const Q* p = q + (size_t)(k / SIZE * HEIGHT + r % HEIGHT) * N + n;
#if defined(WHOLE) && BITS == 4
  return CONVERT(float, B_V)(*(__global const WIDE(Q, B_V)*)p >> (Q)(r < HEIGHT ? 0 : 4) & (Q)15);
#elif defined(WHOLE)
  return CONVERT(float, B_V)(*(__global const WIDE(Q, B_V)*)p);
#else
  float found[B_V] __attribute__((aligned(16)));
#pragma unroll
  for (int i = 0; i < B_V; ++i) found[i] = LOAD_Q(p, i);
  return *(WIDE(float, B_V)*)found;
#endif
}
