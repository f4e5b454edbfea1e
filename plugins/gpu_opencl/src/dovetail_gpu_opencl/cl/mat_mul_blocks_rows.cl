// dst[m][n] = post(sum over k of a[m][k] * wei[k][n]) with a matrix in blocks, for CPUs and several rows.
//
// A work item computes HOLD rows and COLS columns. It unpacks DEPTH rows of the matrix at once into private memory and multiplies
// ROWS rows of a by them in registers, TILE vectors wide; the sums wait in private memory meanwhile.
// NDRange: (ceil(M / HOLD), ceil(N / COLS)), local size 1.
//
// Layout: a [M][K], dst [M][N], wei as in blocks_packed.cl.
//
// Tunables: ROWS and TILE (their product in vector registers), HOLD (a multiple of ROWS), DEPTH,
// VECTORS (a multiple of TILE).
#include "blocks_packed.cl"
#include "post.cl"
#ifndef ROWS
#define ROWS 4
#define TILE 2
#define HOLD 32
#endif
#ifndef DEPTH
#define DEPTH 64
#endif

__kernel void mat_mul_blocks_rows(__global const float* restrict a, __global const uchar* restrict wei, __global float* dst,
                                  const int M, const int N, const int K POST_ARGS) {
  const int row = get_global_id(0) * HOLD, tile = get_global_id(1), blocks = (K + SIZE - 1) / SIZE;
  const int rows = min(HOLD, M - row);
  wei += (size_t)tile * blocks * BLOCK;
  VF sums[HOLD + ROWS][VECTORS], numbers[DEPTH][VECTORS];
  for (int m = 0; m < rows + ROWS - 1; ++m)
    for (int v = 0; v < VECTORS; ++v) sums[m][v] = (VF)(0);
  for (int k0 = 0; k0 < K; k0 += DEPTH) {
    const int depth = min(DEPTH, K - k0);
    // Runs of rows of one block, with 4 bits in the same half of bytes.
    for (int k = 0, run; k < depth; k += run) {
      const int first = (k0 + k) % SIZE;
      run = min(depth - k, (first < HEIGHT ? HEIGHT : SIZE) - first);
      __global const uchar* w = wei + (size_t)((k0 + k) / SIZE) * BLOCK;
      __global const uchar* p = w + PARAMETERS + first % HEIGHT * ROW_BYTES;
      VF scale[VECTORS], offset[VECTORS];
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        scale[v] = PARAMETER(w, v);
#ifdef HAS_OFFSETS
        offset[v] = PARAMETER(w + COLS * P_BYTES, v);
#else
        offset[v] = (VF)(0);
#endif
      }
#if BITS == 4
      const int shift = first < HEIGHT ? 0 : 4;
#endif
      for (int r = 0; r < run; ++r, p += ROW_BYTES) {
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
#if BITS == 4
          const VF q = CAT(convert_float, VEC)(NUMBERS(p, v) >> shift & 15);
#elif BITS == 8
          const VF q = CAT(convert_float, VEC)(NUMBERS(p, v));
#else
          const VF q = NUMBERS(p, v);
#endif
          numbers[k + r][v] = q * scale[v] + offset[v];
        }
      }
    }
    for (int m = 0; m < rows; m += ROWS) {
      __global const float* x[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) x[r] = a + (size_t)min(row + m + r, M - 1) * K + k0;
      for (int t = 0; t < VECTORS; t += TILE) {
        VF acc[ROWS][TILE];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int v = 0; v < TILE; ++v) acc[r][v] = sums[m + r][t + v];
        for (int k = 0; k < depth; ++k) {
          VF q[TILE];
#pragma unroll
          for (int v = 0; v < TILE; ++v) q[v] = numbers[k][t + v];
#pragma unroll
          for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int v = 0; v < TILE; ++v) acc[r][v] += x[r][k] * q[v];
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int v = 0; v < TILE; ++v) sums[m + r][t + v] = acc[r][v];
      }
    }
  }
  for (int m = 0; m < rows; ++m)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int n = tile * COLS + v * VEC, o = (row + m) * N + n;
      if (n + VEC <= N) {
        ((__global PACKED_F*)(dst + o))->v = POST_V(sums[m][v], o);
      } else {
        for (int c = 0; c < VEC && n + c < N; ++c) dst[o + c] = POST(((const float*)&sums[m][v])[c], o + c);
      }
    }
}
