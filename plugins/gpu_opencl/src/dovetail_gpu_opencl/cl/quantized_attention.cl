// Attention on 8-bit numbers, each step of which is quantized: scores of queries and keys, steps behind them, softmax, and the
// products of its weights by values.
//
// A work group of four sub-groups of 32 items computes 16 queries of a head. Their scores, as bytes, are in local memory, then
// their weights.
// Both products are exact in int: of the numbers as they are stored, less what the zero points make of their sums, which are
// products by ones. Without MATRIX_UNITS plain OpenCL C adds up products of differences. SCORE(s, o) makes a stored score of the
// sum of element o of the scores, WEIGHT(w, o) a stored weight, and VALUE(s, o) a stored element of dst; all are generated, and
// read ARGS (kernels/quantized_attention.py).
// NDRange: (batch * HEADS * queries / 16, rounded up, * 128), local size 128.
//
// Layout: q, dst [batch][QUERIES][HEADS][D or DV], k, v [batch][KEYS][HEADS][D or DV]. D is a multiple of 32, DV of 8.
// scores[query][KEYS, filled up to 32] in local memory, in rows of 16 bytes more.
//
// HAS_W_ZERO says that the zero point of weights is not 0.
//
// Local memory in bytes: 16 rows of scores, and 512.
#ifndef S_T
#define Q_FORMAT "u8"
#define K_FORMAT "u8"
#define W_FORMAT "u8"
#define V_FORMAT "u8"
#define Q_T uchar
#define K_T uchar
#define W_T uchar
#define V_T uchar
#define S_T uchar
#define D 32
#define DV 32
#define SCORE(s, o) ((s) & 255)
#define WEIGHT(w, o) ((int)((w) * 255))
#define VALUE(s, o) ((s) & 255)
#define ARGS
#define SIZES , const int QUERIES, const int KEYS, const int HEADS, const int Q_ZERO, const int K_ZERO, const int W_ZERO, \
  const int V_ZERO, const float EXPONENT
#endif
#define ONES 0x01010101u
#define PITCH (padded + 16)
#define SUB_GROUPS 4
#define ITEMS (SUB_GROUPS * 32)
#define TILES ((DV / 8 + SUB_GROUPS - 1) / SUB_GROUPS)  // of eight columns of values, for each sub-group

#ifdef MATRIX_UNITS
#define BYTES(A, B, c, a, b)                                                                                \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." A##_FORMAT "." B##_FORMAT ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                                              \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#endif
#define COLUMN(j) (((j) * SUB_GROUPS + sub_group) * 8)
// The head's numbers of the row `at` of a value of so many rows and columns.
#define ROW(x, rows, at, columns) ((x) + ((batch * (rows) + (at)) * HEADS + head) * (columns))

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void quantized_attention(
    __global const uchar* restrict q, __global const uchar* restrict k, __global const uchar* restrict v,
    __global uchar* restrict dst, __local uchar* scores SIZES ARGS) {
  __local float shared[ITEMS];
  const int item = get_local_id(0), lane = item % 32, sub_group = item / 32, tiles = (QUERIES + 15) / 16, padded = (KEYS + 31) / 32 * 32;
  const int head = get_group_id(0) / tiles % HEADS, batch = get_group_id(0) / tiles / HEADS;
  const int first = get_group_id(0) % tiles * 16, own = lane / 4, column = lane % 4;
#ifdef MATRIX_UNITS
  const uint ones[4] = {ONES, ONES, ONES, ONES};
  uint queries[D / 32][4];
  int of_queries[4] = {0, 0, 0, 0};  // sums of the numbers of each query
#pragma unroll
  for (int d = 0; d < D / 32; ++d) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      __global const uchar* query = ROW(q, QUERIES, min(first + own + r % 2 * 8, QUERIES - 1), D);
      queries[d][r] = *(__global const uint*)(query + d * 32 + column * 4 + r / 2 * 16);
    }
    BYTES(Q, K, of_queries, queries[d], ones);
  }
#endif
#pragma unroll 2
  for (int n = sub_group * 8; n < padded; n += SUB_GROUPS * 8) {
    int sums[4] = {0, 0, 0, 0};
#ifdef MATRIX_UNITS
    __global const uchar* key = ROW(k, KEYS, min(n + own, KEYS - 1), D) + column * 4;
    int of_keys[4] = {0, 0, 0, 0};
#pragma unroll
    for (int d = 0; d < D / 32; ++d) {
      const uint numbers[2] = {*(__global const uint*)(key + d * 32), *(__global const uint*)(key + d * 32 + 16)};
      BYTES(Q, K, sums, queries[d], numbers);
      BYTES(Q, K, of_keys, ones, numbers);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[r] += D * Q_ZERO * K_ZERO - K_ZERO * of_queries[r] - Q_ZERO * of_keys[r];
#else
    for (int r = 0; r < 4; ++r) {
      __global const Q_T* query = (__global const Q_T*)ROW(q, QUERIES, min(first + own + r / 2 * 8, QUERIES - 1), D);
      __global const K_T* key = (__global const K_T*)ROW(k, KEYS, min(n + column * 2 + r % 2, KEYS - 1), D);
      for (int d = 0; d < D; ++d) sums[r] += (query[d] - Q_ZERO) * (key[d] - K_ZERO);
    }
#endif
#pragma unroll
    for (int r = 0; r < 4; r += 2) {
      const int row = own + r / 2 * 8, at = n + column * 2;
      const int place = ((batch * HEADS + head) * QUERIES + min(first + row, QUERIES - 1)) * KEYS;
#pragma unroll
      for (int c = 0; c < 2; ++c) scores[row * PITCH + at + c] = (uchar)SCORE(sums[r + c], place + min(at + c, KEYS - 1));
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // Eight items share a query, and take four scores at once.
  {
    const int row = item / 8, other = item % 8;
    __local uint* words = (__local uint*)(scores + row * PITCH);
    const int place = ((batch * HEADS + head) * QUERIES + min(first + row, QUERIES - 1)) * KEYS;
    int top = -256;
    for (int w = other; w < padded / 4; w += 8) {
      const uint four = words[w];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (w * 4 + e < KEYS) top = max(top, (int)(S_T)(four >> e * 8));
    }
    shared[item] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < 8; ++i) top = max(top, (int)shared[row * 8 + i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int w = other; w < padded / 4; w += 8) {
      const uint four = words[w];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (w * 4 + e < KEYS) sum += exp2(((int)(S_T)(four >> e * 8) - top) * EXPONENT);
    }
    shared[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += shared[row * 8 + i];
    const float factor = 1.0f / sum;
    for (int w = other; w < padded / 4; w += 8) {
      const uint four = words[w];
      uint found = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float weight = exp2(((int)(S_T)(four >> e * 8) - top) * EXPONENT) * factor;
        const int stored = w * 4 + e < KEYS ? WEIGHT(weight, place + w * 4 + e) : W_ZERO;
        found |= (uint)(stored & 255) << e * 8;
      }
      words[w] = found;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  int found[TILES][4];
#pragma unroll
  for (int j = 0; j < TILES; ++j)
#pragma unroll
    for (int r = 0; r < 4; ++r) found[j][r] = 0;
#ifdef MATRIX_UNITS
  int of_weights[4] = {0, 0, 0, 0};
#ifdef HAS_W_ZERO
  int of_values[TILES][4];
#pragma unroll
  for (int j = 0; j < TILES; ++j)
#pragma unroll
    for (int r = 0; r < 4; ++r) of_values[j][r] = 0;
#endif
  for (int n = 0; n < padded; n += 32) {
    uint weights[4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
      weights[r] = *(__local const uint*)(scores + (own + r % 2 * 8) * PITCH + n + column * 4 + r / 2 * 16);
    BYTES(W, V, of_weights, weights, ones);
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
      uint numbers[2] = {0, 0};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int key = min(n + column * 4 + e / 4 * 16 + e % 4, KEYS - 1);
        numbers[e / 4] |= (uint)ROW(v, KEYS, key, DV)[min(COLUMN(j), DV - 8) + own] << e % 4 * 8;
      }
      BYTES(W, V, found[j], weights, numbers);
#ifdef HAS_W_ZERO
      BYTES(W, V, of_values[j], ones, numbers);
#endif
    }
  }
#pragma unroll
  for (int j = 0; j < TILES; ++j)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      found[j][r] -= V_ZERO * of_weights[r];
#ifdef HAS_W_ZERO
      found[j][r] += W_ZERO * (padded * V_ZERO - of_values[j][r]);
#endif
    }
#else
  for (int j = 0; j < TILES; ++j)
    for (int r = 0; r < 4; ++r)
      for (int n = 0; n < KEYS; ++n) {
        const int weight = ((__local const W_T*)scores)[(own + r / 2 * 8) * PITCH + n];
        found[j][r] += (weight - W_ZERO) * (((__global const V_T*)ROW(v, KEYS, n, DV))[min(COLUMN(j), DV - 8) + column * 2 + r % 2] - V_ZERO);
      }
#endif
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = first + own + r / 2 * 8;
    if (row >= QUERIES) continue;
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
      const int d = COLUMN(j) + column * 2 + r % 2;
      if (d >= DV) continue;
      ROW(dst, QUERIES, row, DV)[d] = (uchar)VALUE(found[j][r], ((batch * HEADS + head) * QUERIES + row) * DV + d);
    }
  }
}
