// dst[n] = post(sum over k of a[k] * wei[k][n]) with a matrix in blocks, for CPUs: one row, as language models have token by
// token.
//
// With MATRICES 2 or 3 there are as many matrices and results, or with GATED one result: post(a * wei) * (a * wei1).
//
// A work item computes COLS columns in vectors; a is brought into private memory block by block, because its sum meets the
// offset.
// Numbers of 4 bits in the high half of a byte are used as 16 times what they are, with a sixteenth of a.
// NDRange: (sum of ceil(N / COLS) of all results), local size 1.
//
// Layout: a [K], dst [N], wei as in blocks_packed.cl. Matrices have one form, but their own N.
//
// Tunables: VECTORS.
#ifndef MATRICES
#define MATRICES 1
#endif
#include "blocks_packed.cl"
#include "post.cl"
#define LANES 8
#define TILES(columns) (((columns) + COLS - 1) / COLS)
#ifdef GATED
#define MORE_ARGS , __global const uchar* restrict wei1
#define TIMES(x) * (x)
#else
#define TIMES(x)
#if MATRICES > 2
#define MORE_ARGS \
  , __global const uchar* wei1, __global float* dst1, const int N1, __global const uchar* wei2, __global float* dst2, const int N2
#elif MATRICES > 1
#define MORE_ARGS , __global const uchar* wei1, __global float* dst1, const int N1
#else
#define MORE_ARGS
#endif
#endif
#if SIZE % LANES == 0
#define FILLED SIZE
#else
#define FILLED (SIZE / LANES * LANES + LANES)
#endif
typedef struct __attribute__((packed)) {
  float8 v;
} PACKED_8;

// x = the next `depth` elements of a block, zeros behind; their sum.
static inline float fill(float* x, __global const float* a, const int depth) {
  float8 sums = (float8)(0);
  if (depth == FILLED) {
    for (int k = 0; k < FILLED; k += LANES) {
      const float8 v = ((__global const PACKED_8*)(a + k))->v;
      *(float8*)(x + k) = v;
      sums += v;
    }
  } else {
    for (int k = 0; k < FILLED; ++k) x[k] = k < depth ? a[k] : 0.0f;
    for (int k = 0; k < FILLED; k += LANES) sums += *(float8*)(x + k);
  }
  const float4 four = sums.lo + sums.hi;
  const float2 two = four.lo + four.hi;
  return two.x + two.y;
}

// The sums of a tile of columns.
static inline void multiply(VF* acc, __global const float* restrict a, __global const uchar* restrict wei, const int tile,
                            const int K) {
  __global const uchar* w = wei + (size_t)tile * ((K + SIZE - 1) / SIZE) * BLOCK;
  float x[FILLED] __attribute__((aligned(32)));
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) acc[v] = (VF)(0);
  for (int k0 = 0; k0 < K; k0 += SIZE) {
    const float total = fill(x, a + k0, min(SIZE, K - k0));
    __global const uchar* p = w;
    w += PARAMETERS;
    VF low[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) low[v] = (VF)(0);
#if BITS == 4
    VF high[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) high[v] = (VF)(0);
#endif
    for (int r = 0; r < HEIGHT; ++r) {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
#if BITS == 4
        const VI q = NUMBERS(w, v);
        low[v] += x[r] * CAT(convert_float, VEC)(q & 15);
        high[v] += x[r + HEIGHT] * CAT(convert_float, VEC)(q & 240);
#elif BITS == 8
        low[v] += x[r] * CAT(convert_float, VEC)(NUMBERS(w, v));
#else
        low[v] += x[r] * NUMBERS(w, v);
#endif
      }
      w += ROW_BYTES;
    }
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
#if BITS == 4
      low[v] += 0.0625f * high[v];
#endif
      acc[v] += PARAMETER(p, v) * low[v];
#ifdef HAS_OFFSETS
      acc[v] += PARAMETER(p + COLS * P_BYTES, v) * total;
#endif
    }
  }
}

__kernel void mat_mul_blocks_row(__global const float* restrict a, __global const uchar* wei, __global float* dst,
                                 const int N, const int K MORE_ARGS POST_ARGS) {
  int tile = get_global_id(0), columns = N;
#if MATRICES > 1 && !defined(GATED)
  if (tile >= TILES(columns)) {
    tile -= TILES(columns);
    wei = wei1;
    dst = dst1;
    columns = N1;
#if MATRICES > 2
    if (tile >= TILES(columns)) {
      tile -= TILES(columns);
      wei = wei2;
      dst = dst2;
      columns = N2;
    }
#endif
  }
#endif
  VF acc[VECTORS];
  multiply(acc, a, wei, tile, K);
#ifdef GATED
  VF second[VECTORS];
  multiply(second, a, wei1, tile, K);
#endif
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int o = tile * COLS + v * VEC;
    if (o + VEC <= columns) {
      ((__global PACKED_F*)(dst + o))->v = POST_V(acc[v], o) TIMES(second[v]);
    } else {
      for (int c = 0; c < VEC && o + c < columns; ++c)
        dst[o + c] = POST(((const float*)&acc[v])[c], o + c) TIMES(((const float*)&second[v])[c]);
    }
  }
}
