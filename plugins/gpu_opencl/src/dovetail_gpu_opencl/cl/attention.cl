// Attention for GPUs: dst = softmax(SCALE * q k' + mask) v for each head, in one pass over the keys (Milakov and Gimelshein,
// 2018).
//
// A work group of LANES x LOCAL_Q items computes BLOCK_Q = ROWS * LOCAL_Q queries of one head. It goes through blocks of BLOCK_K
// = LANES * KEYS keys, which are in local memory with their values: an item takes ROWS queries and every LANES-th key, later
// every LANES-th element of the result.
// NDRange: (ceil(QUERIES / BLOCK_Q) * LANES * LOCAL_Q, HEADS, batch), local size (LANES * LOCAL_Q, 1, 1).
//
// Layout: see heads.cl; keys begin at element K_0, values at V_0.
//
// Tunables: LOCAL_Q, KEYS. Local memory: BLOCK_Q * (D + LANES) + BLOCK_K * (max(D + 4, BLOCK_Q) + DV) elements of ACC, D and DV
// rounded up to 4.
#include "heads.cl"
#ifndef K_0
#define K_0 0
#define V_0 0
#endif
#ifndef LOCAL_Q
#define LOCAL_Q 4
#define KEYS 2
#endif
#define ACC4 CAT(ACC, 4)
#define LANES 32
#define ROWS 4
#define BLOCK_Q (ROWS * LOCAL_Q)
#define BLOCK_K (LANES * KEYS)
#define ITEMS (LANES * LOCAL_Q)
#define UP4(n) (((n) + 3) / 4 * 4)
#define WIDTH UP4(D)
// Rows of keys are padded so that neighbouring keys start in other banks.
#define PITCH (WIDTH + 4 > BLOCK_Q ? WIDTH + 4 : BLOCK_Q)
#define COLS ((DV + LANES - 1) / LANES)
// Four adjacent elements of ACC, aligned as such, which K_ALIGNED says of keys and V_ALIGNED of values.
#ifdef T_IS_HALF
#define LOAD4(p) vloada_half4(0, p)
#elif defined(T_IS_BFLOAT16)
#define LOAD4(p) as_float4(convert_uint4(*(__global const ushort4*)(p)) << 16)
#else
#define LOAD4(p) CAT(convert_, ACC4)(*(__global const CAT(T, 4)*)(p))
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention(
    __global const T* restrict q, __global const T* restrict k, __global const T* restrict v MASK_ARG LENGTHS_ARG,
    __global T* restrict dst SIZES) {
  __local ACC queries[BLOCK_Q * WIDTH] __attribute__((aligned(16)));
  __local ACC keys[BLOCK_K * PITCH] __attribute__((aligned(16)));
  __local ACC values[BLOCK_K * UP4(DV)] __attribute__((aligned(16)));
  __local ACC tops[BLOCK_Q * LANES] __attribute__((aligned(16)));
  const int item = get_local_id(0), lane = item % LANES, row = item / LANES * ROWS;
  const int first = get_group_id(0) * BLOCK_Q, head = get_group_id(1), batch = get_group_id(2);
  q += batch * Q_B + head * Q_H;
  k += K_0 + batch * K_B + head / SHARE * K_H;
  v += V_0 + batch * V_B + head / SHARE * V_H;
  const int start = FIRST(batch), used = USED(batch);
  dst += batch * Y_B + head * Y_H;
  for (int e = item; e < BLOCK_Q * WIDTH; e += ITEMS) {
    const int i = first + e / WIDTH, d = e % WIDTH;
    queries[e] = i < QUERIES && d < D ? (ACC)LOAD_T(q, i * Q_S + d) * SCALE : (ACC)0;
  }
  ACC out[ROWS][COLS], top[ROWS], sum[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    top[r] = -INFINITY;
    sum[r] = 0;
#pragma unroll
    for (int c = 0; c < COLS; ++c) out[r][c] = 0;
  }
  const int end = END(start + min(first + BLOCK_Q, QUERIES) - 1, used);

  for (int k0 = BEGIN(start + first) / BLOCK_K * BLOCK_K; k0 < end; k0 += BLOCK_K) {
#ifdef K_ALIGNED
#pragma unroll 8
    for (int e = item * 4; e < BLOCK_K * WIDTH; e += ITEMS * 4) {
      const int j = k0 + e / WIDTH;
      *(__local ACC4*)(keys + e / WIDTH * PITCH + e % WIDTH) = j < used ? LOAD4(k + j * K_S + e % WIDTH) : (ACC4)(0);
    }
#else
    for (int e = item; e < BLOCK_K * WIDTH; e += ITEMS) {
      const int j = k0 + e / WIDTH, d = e % WIDTH;
      keys[e / WIDTH * PITCH + d] = j < used && d < D ? (ACC)LOAD_T(k, j * K_S + d) : (ACC)0;
    }
#endif
#ifdef V_ALIGNED
#pragma unroll 8
    for (int e = item * 4; e < BLOCK_K * DV; e += ITEMS * 4) {
      const int j = k0 + e / DV;
      *(__local ACC4*)(values + e) = j < used ? LOAD4(v + j * V_S + e % DV) : (ACC4)(0);
    }
#else
    for (int e = item; e < BLOCK_K * UP4(DV); e += ITEMS) {
      const int j = k0 + e / UP4(DV), d = e % UP4(DV);
      values[e] = j < used && d < DV ? (ACC)LOAD_T(v, j * V_S + d) : (ACC)0;
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    ACC score[ROWS][KEYS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int j = 0; j < KEYS; ++j) score[r][j] = 0;
#pragma unroll 4
    for (int d = 0; d < WIDTH; d += 4) {
      ACC4 a[ROWS], b[KEYS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) a[r] = *(__local const ACC4*)(queries + (row + r) * WIDTH + d);
#pragma unroll
      for (int j = 0; j < KEYS; ++j) b[j] = *(__local const ACC4*)(keys + (lane + j * LANES) * PITCH + d);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
          score[r][j] = fma(a[r].x, b[j].x, score[r][j]);
          score[r][j] = fma(a[r].y, b[j].y, score[r][j]);
          score[r][j] = fma(a[r].z, b[j].z, score[r][j]);
          score[r][j] = fma(a[r].w, b[j].w, score[r][j]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int i = min(first + row + r, QUERIES - 1);
      ACC most = -INFINITY;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        const int at = k0 + lane + j * LANES;
        ACC s = MASKED(CAPPED(score[r][j]), batch * M_B + head * M_H + i * M_S + min(at, M_LAST) * M_K);
        s = at >= BEGIN(start + i) && at < END(start + i, used) ? s : -INFINITY;
        score[r][j] = s;
        most = fmax(most, s);
      }
      tops[(row + r) * LANES + lane] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // The keys are used up: their memory takes the weights, [BLOCK_K][BLOCK_Q].
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      ACC4 most = (ACC4)(-INFINITY);
#pragma unroll
      for (int l = 0; l < LANES; l += 4) most = fmax(most, *(__local const ACC4*)(tops + (row + r) * LANES + l));
      const ACC now = fmax(top[r], fmax(fmax(most.x, most.y), fmax(most.z, most.w)));
      const ACC base = now == -INFINITY ? (ACC)0 : now;
      const ACC factor = exp(top[r] - base);
      top[r] = now;
      sum[r] *= factor;
#pragma unroll
      for (int c = 0; c < COLS; ++c) out[r][c] *= factor;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) keys[(lane + j * LANES) * BLOCK_Q + row + r] = exp(score[r][j] - base);
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const int there = min(BLOCK_K, used - k0);
#pragma unroll 4
    for (int j = 0; j < there; ++j) {
      const ACC4 w = *(__local const ACC4*)(keys + j * BLOCK_Q + row);
      sum[0] += w.x;
      sum[1] += w.y;
      sum[2] += w.z;
      sum[3] += w.w;
#pragma unroll
      for (int c = 0; c < COLS; ++c) {
        const ACC x = lane + c * LANES < DV ? values[j * UP4(DV) + lane + c * LANES] : (ACC)0;
        out[0][c] = fma(w.x, x, out[0][c]);
        out[1][c] = fma(w.y, x, out[1][c]);
        out[2][c] = fma(w.z, x, out[2][c]);
        out[3][c] = fma(w.w, x, out[3][c]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
      const int i = first + row + r, d = lane + c * LANES;
      if (i < QUERIES && d < DV) STORE_T(dst, i * Y_S + d, sum[r] == 0 ? (ACC)0 : out[r][c] / sum[r]);
    }
}
