// Attention on 8-bit numbers, each step of which is quantized: scores of queries and keys, steps behind them, softmax, and the
// products of its weights by values.
//
// A work group of four sub-groups of 32 items computes 16 queries of a head. Their scores, as bytes, are in local memory, then
// their weights.
// Both products are exact in int: of the numbers as they are stored, less what the zero points make of their sums, which are
// products by ones. Without MATRIX_UNITS plain OpenCL C adds up products of differences. SCORE(s, o) makes a stored score of the
// sum s, WEIGHT(s, o) a stored weight, and VALUE(s, o) a stored element of dst; all are generated, and read ARGS
// (kernels/quantized_attention.py). QUICK_ ones give floats, and NaN where the others must be asked: one branch for four numbers.
// Operands of scores are at o = batch * S_BATCH + head * S_HEAD + query * S_QUERY + key; those of others do not depend on o.
// NDRange: (batch * HEADS * queries / 16, rounded up, * 128), local size 128.
//
// Layout: q, dst [batch][QUERIES][HEADS][D or DV], k, v [batch][KEYS][HEADS][D or DV]. D is a multiple of 32, DV of 8.
// scores[query][KEYS, filled up to 32] in local memory, in rows of 16 bytes more.
//
// HAS_W_ZERO says that the zero point of weights is not 0.
//
// Local memory in bytes: 16 rows of scores, 1,536 and 64 for each column of values, filled up to 32.
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
#define WEIGHT(s, o) ((int)((s) * 255))
#define VALUE(s, o) ((s) & 255)
#define QUICK_SCORE(s, o) NAN
#define QUICK_WEIGHT(s, o) NAN
#define QUICK_VALUE(s, o) NAN
#define ARGS
#define SIZES , const int QUERIES, const int KEYS, const int HEADS, const int S_BATCH, const int S_HEAD, const int S_QUERY, \
  const int Q_ZERO, const int K_ZERO, const int W_ZERO, const int V_ZERO, const float EXPONENT
#endif
#define ONES 0x01010101u
#define PITCH (padded + 16)
#define SUB_GROUPS 4
#define ITEMS (SUB_GROUPS * 32)
#define GROUPS ((DV + 31) / 32)    // of 32 columns of values
#define WIDTH (GROUPS * 32 + 1)    // of a row of totals, so that neighbouring rows are in other banks
#define BITS(f) (as_uint((f) + 12582912.0f) & 255)  // the low byte of a whole number

#ifdef MATRIX_UNITS
// d = c + a * b
#define BYTES(A, B, d, c, a, b)                                                                                \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." A##_FORMAT "." B##_FORMAT ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" \
      : "=r"((d)[0]), "=r"((d)[1]), "=r"((d)[2]), "=r"((d)[3])                                                 \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]), "r"((c)[0]), "r"((c)[1]), "r"((c)[2]), "r"((c)[3]))
// Four of the eight bytes of a and b.
#define PICK(r, a, b, places) asm("prmt.b32 %0, %1, %2, " places ";" : "=r"(r) : "r"(a), "r"(b))
#endif
// The head's numbers of the row `at` of a value of so many rows and columns.
#define ROW(x, rows, at, columns) ((x) + ((batch * (rows) + (at)) * HEADS + head) * (columns))
#define OPERANDS(r) \
  (batch * S_BATCH + head * S_HEAD + min(first + own + (r) / 2 * 8, QUERIES - 1) * S_QUERY + min(n + column * 2 + (r) % 2, KEYS - 1))
// Four stored numbers by the quick functions, or by the others where these are not sure.
#define FOUR(found, NAME, sums, places)                                             \
  {                                                                                 \
    float any = 0;                                                                  \
    for (int r = 0; r < 4; ++r) any += found[r] = QUICK_##NAME(sums[r], places(r)); \
    if (any != any)                                                                 \
      for (int r = 0; r < 4; ++r)                                                   \
        if (found[r] != found[r]) found[r] = NAME(sums[r], places(r));              \
  }
#define NOWHERE(r) 0

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void quantized_attention(
    __global const uchar* restrict q, __global const uchar* restrict k, __global const uchar* restrict v,
    __global uchar* restrict dst, __local uchar* scores SIZES ARGS) {
  __local int totals[16 * WIDTH];
  __local float shared[ITEMS], tops[16 * 16] __attribute__((aligned(16)));
  const int item = get_local_id(0), lane = item % 32, sub_group = item / 32, tiles = (QUERIES + 15) / 16, padded = (KEYS + 31) / 32 * 32;
  const int group = get_group_id(0), line = group / tiles, batch = line / HEADS, head = line - batch * HEADS;
  const int first = (group - line * tiles) * 16, own = lane / 4, column = lane % 4;
#ifdef MATRIX_UNITS
  const uint ones[4] = {ONES, ONES, ONES, ONES};
  const int none[4] = {0, 0, 0, 0};
  uint queries[D / 32][4];
  int base[4] = {0, 0, 0, 0};  // sums of the numbers of each query, then where the sums of scores begin
#pragma unroll
  for (int d = 0; d < D / 32; ++d) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      __global const uchar* query = ROW(q, QUERIES, min(first + own + r % 2 * 8, QUERIES - 1), D);
      queries[d][r] = *(__global const uint*)(query + d * 32 + column * 4 + r / 2 * 16);
    }
    BYTES(Q, K, base, base, queries[d], ones);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) base[r] = D * Q_ZERO * K_ZERO - K_ZERO * base[r];
  for (int i = item; i < 16 * WIDTH; i += ITEMS) totals[i] = 0;
#endif
  float top[2] = {-INFINITY, -INFINITY};
  for (int n = sub_group * 8; n < padded; n += SUB_GROUPS * 8) {
    int sums[4] = {0, 0, 0, 0};
#ifdef MATRIX_UNITS
    __global const uchar* key = ROW(k, KEYS, min(n + own, KEYS - 1), D) + column * 4;
    int of_keys[4] = {0, 0, 0, 0};
#pragma unroll
    for (int d = 0; d < D / 32; ++d) {
      const uint numbers[2] = {*(__global const uint*)(key + d * 32), *(__global const uint*)(key + d * 32 + 16)};
      BYTES(Q, K, sums, (d ? sums : base), queries[d], numbers);
      BYTES(Q, K, of_keys, of_keys, ones, numbers);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[r] -= Q_ZERO * of_keys[r % 2];
#else
    for (int r = 0; r < 4; ++r) {
      __global const Q_T* query = (__global const Q_T*)ROW(q, QUERIES, min(first + own + r / 2 * 8, QUERIES - 1), D);
      __global const K_T* key = (__global const K_T*)ROW(k, KEYS, min(n + column * 2 + r % 2, KEYS - 1), D);
      for (int d = 0; d < D; ++d) sums[r] += (query[d] - Q_ZERO) * (key[d] - K_ZERO);
    }
#endif
    float found[4];
    FOUR(found, SCORE, sums, OPERANDS)
#pragma unroll
    for (int r = 0; r < 4; r += 2) {
      top[r / 2] = fmax(top[r / 2], fmax(found[r], found[r + 1]));
      *(__local ushort*)(scores + (own + r / 2 * 8) * PITCH + n + column * 2) = BITS(found[r]) | BITS(found[r + 1]) << 8;
    }
  }
  for (int r = 0; r < 2; ++r) tops[(own + r * 8) * 16 + sub_group * 4 + column] = top[r];
  barrier(CLK_LOCAL_MEM_FENCE);

  // Eight items share a query, and take four scores at once. What is behind the last key repeats its score.
  {
    const int row = item / 8, other = item % 8;
    __local uint* words = (__local uint*)(scores + row * PITCH);
    float4 most = vload4(row * 4, tops);
#pragma unroll
    for (int i = 1; i < 4; ++i) most = fmax(most, vload4(row * 4 + i, tops));
    const float greatest = fmax(fmax(most.x, most.y), fmax(most.z, most.w));
    float sum = 0;
    for (int w = other; w < padded / 4; w += 8) {
      const uint four = words[w];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sum += exp2(w * 4 + e < KEYS ? ((S_T)(four >> e * 8) - greatest) * EXPONENT : -INFINITY);
    }
    shared[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float4 parts = vload4(row * 2, shared) + vload4(row * 2 + 1, shared);
    const float factor = 1.0f / (parts.x + parts.y + parts.z + parts.w);
    for (int w = other; w < padded / 4; w += 8) {
      const uint four = words[w];
      float weights[4], found[4];
      uint stored = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) weights[e] = exp2(((S_T)(four >> e * 8) - greatest) * EXPONENT) * factor;
      FOUR(found, WEIGHT, weights, NOWHERE)
#pragma unroll
      for (int e = 0; e < 4; ++e) stored |= (w * 4 + e < KEYS ? BITS(found[e]) : (uint)W_ZERO & 255) << e * 8;
      words[w] = stored;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  // Each sub-group multiplies the weights of 32 keys at a time by their values, and adds to totals.
#ifdef MATRIX_UNITS
  int sums[GROUPS * 4][4];
#pragma unroll
  for (int j = 0; j < GROUPS * 4; ++j)
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[j][r] = 0;
  int of_weights[4] = {0, 0, 0, 0};
  for (int n = sub_group * 32; n < padded; n += SUB_GROUPS * 32) {
    uint weights[4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
      weights[r] = *(__local const uint*)(scores + (own + r % 2 * 8) * PITCH + n + column * 4 + r / 2 * 16);
    BYTES(W, V, of_weights, of_weights, weights, ones);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      // An item reads four columns of eight keys. Column e of each is in product e.
      uint numbers[4][2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint of_keys[4], low[2], high[2];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          __global const uchar* value = ROW(v, KEYS, min(n + column * 4 + h * 16 + e, KEYS - 1), DV);
          of_keys[e] = *(__global const uint*)(value + min(g * 32 + own * 4, DV - 4));
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          PICK(low[e], of_keys[e * 2], of_keys[e * 2 + 1], "0x5140");
          PICK(high[e], of_keys[e * 2], of_keys[e * 2 + 1], "0x7362");
        }
        PICK(numbers[0][h], low[0], low[1], "0x5410");
        PICK(numbers[1][h], low[0], low[1], "0x7632");
        PICK(numbers[2][h], high[0], high[1], "0x5410");
        PICK(numbers[3][h], high[0], high[1], "0x7632");
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        BYTES(W, V, sums[g * 4 + e], sums[g * 4 + e], weights, numbers[e]);
#ifdef HAS_W_ZERO
        int of_values[4];
        BYTES(W, V, of_values, none, ones, numbers[e]);
#pragma unroll
        for (int r = 0; r < 4; ++r) sums[g * 4 + e][r] += W_ZERO * (32 * V_ZERO - of_values[r]);
#endif
      }
    }
  }
  if (sub_group * 32 < padded)
#pragma unroll
    for (int j = 0; j < GROUPS * 4; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        atomic_add(totals + (own + r / 2 * 8) * WIDTH + j / 4 * 32 + (column * 2 + r % 2) * 4 + j % 4, sums[j][r] - V_ZERO * of_weights[r]);
#else
  for (int i = item; i < 16 * DV; i += ITEMS) {
    int sum = 0;
    for (int n = 0; n < KEYS; ++n) {
      const int weight = ((__local const W_T*)scores)[i / DV * PITCH + n] - W_ZERO;
      sum += weight * (((__global const V_T*)ROW(v, KEYS, n, DV))[i % DV] - V_ZERO);
    }
    totals[i / DV * WIDTH + i % DV] = sum;
  }
#endif
  barrier(CLK_LOCAL_MEM_FENCE);

  for (int i = item; i < 16 * (DV / 4); i += ITEMS) {
    const int row = i / (DV / 4), d = i % (DV / 4) * 4;
    if (first + row >= QUERIES) continue;
    __local const int* sums = totals + row * WIDTH + d;
    float found[4];
    FOUR(found, VALUE, sums, NOWHERE)
    uint stored = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) stored |= BITS(found[e]) << e * 8;
    *(__global uint*)(ROW(dst, QUERIES, first + row, DV) + d) = stored;
  }
}
