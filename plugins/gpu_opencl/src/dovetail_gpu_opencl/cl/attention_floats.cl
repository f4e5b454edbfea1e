// Attention in floats for NVIDIA GPUs from sm_80 on: dst = softmax(SCALE * q k' + mask) v for each head, in one pass over the
// keys (Dao, FlashAttention-2, 2023), by products of TF32 (float_products.cl).
//
// A work group computes ROWS = 16 * SUB_GROUPS queries of one head, each sub-group 16. Blocks of KEYS keys and their values are
// copied to local memory while the block before is worked on. Scores and results that are not numbers are computed again, by fma.
// NDRange: (ceil(QUERIES / ROWS) * 32 * SUB_GROUPS, HEADS, batch), local size (32 * SUB_GROUPS, 1, 1).
//
// Layout: see heads.cl; keys begin at element K_0, values at V_0; D and DV are multiples of 16, all steps multiples of 4. Rows of
// local memory are padded by 16 bytes, so that the eight rows which ldmatrix reads at once are in 32 banks.
//
// Tunables: SUB_GROUPS, KEYS (a multiple of 16). Local memory: 2 * KEYS * (D + DV + 8) * 4 bytes.
#define FLOATS 1
#include "attention_fragments.cl"
#define K_PITCH ((D + 4) * 4)
#define V_PITCH ((DV + 4) * 4)
#define STAGE_BYTES (KEYS * (K_PITCH + V_PITCH))
#include "matrix_instructions.cl"
#include "float_products.cl"
#define ALONG_V _Pragma("unroll") for (int d = 0; d < DV / 8; ++d)

static float dot_product(__global const float* x, __global const float* y) {
  float sum = 0;
#pragma unroll 1
  for (int d = 0; d < D; ++d) sum = fma(x[d], y[d], sum);
  return sum;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_floats(
    __global const float* restrict q, __global const float* restrict k, __global const float* restrict v MASK_ARG,
    __global float* restrict dst SIZES) {
  __local uchar tile[2 * STAGE_BYTES] __attribute__((aligned(128)));
  EXCHANGE
  const int item = get_local_id(0), lane = item % SUB_GROUP, sub_group = item / SUB_GROUP;
  const int first = get_group_id(0) * ROWS, head = get_group_id(1), batch = get_group_id(2);
  // An item has two rows of the scores and of the result, `low` and the one 8 below.
  const int low = first + sub_group * 16 + lane / 4, pair = lane % 4 * 2;
  q += batch * Q_B + head * Q_H;
  k += K_0 + batch * K_B + head / SHARE * K_H;
  v += V_0 + batch * V_B + head / SHARE * V_H;
  dst += batch * Y_B + head * Y_H;
  uint query[D / 8][4];
#pragma unroll
  for (int d = 0; d < D / 8; ++d)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      query[d][r] = as_uint(q[min(low + r % 2 * 8, QUERIES - 1) * Q_S + d * 8 + r / 2 * 4 + lane % 4]);
  float out[DV / 8][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  ALONG_V for (int r = 0; r < 4; ++r) out[d][r] = 0;
#ifdef CAUSAL
  const int end = min(TOTAL, first + ROWS);
#else
  const int end = TOTAL;
#endif
  const int blocks = (end + KEYS - 1) / KEYS;

  // Turn t copies block t, then works on block t - 1.
  for (int turn = 0; turn <= blocks; ++turn) {
    if (turn < blocks) {
      const int base = turn % 2 * STAGE_BYTES;
      for (int e = item; e < KEYS * (D / 4); e += ITEMS) {
        const int row = e / (D / 4), key = turn * KEYS + row;
        COPY(base + row * K_PITCH + e % (D / 4) * 16, k + min(key, TOTAL - 1) * K_S + e % (D / 4) * 4, key < TOTAL);
      }
      for (int e = item; e < KEYS * (DV / 4); e += ITEMS) {
        const int row = e / (DV / 4), key = turn * KEYS + row;
        COPY(base + KEYS * K_PITCH + row * V_PITCH + e % (DV / 4) * 16, v + min(key, TOTAL - 1) * V_S + e % (DV / 4) * 4,
            key < TOTAL);
      }
    }
    COMMIT;
    if (turn == 0) continue;
    WAIT_FOR(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int base = (turn - 1) % 2 * STAGE_BYTES, k0 = (turn - 1) * KEYS;
    float score[KEYS / 8][4];
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) {
      float most[2][4], rest[2][4];
#pragma unroll
      for (int r = 0; r < 8; ++r) most[r / 4][r % 4] = rest[r / 4][r % 4] = 0;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        uint keys[4], low_keys[4], high[4], low_query[4];
        FRAGMENTS(keys, base + (j * 16 + lane / 16 * 8 + lane % 8) * K_PITCH + (d * 2 + lane / 8 % 2) * 16);
#pragma unroll
        for (int r = 0; r < 4; ++r) high[r] = query[d][r];
        SEPARATE(keys, low_keys);
        SEPARATE(high, low_query);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          ADD_LOW(rest[h], high, low_query, keys + h * 2, low_keys + h * 2);
          MULTIPLY(most[h], high, keys + h * 2);
        }
      }
#pragma unroll
      for (int r = 0; r < 8; ++r) score[2 * j + r / 4][r % 4] = most[r / 4][r % 4] + rest[r / 4][r % 4];
    }
    float most[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int i = min(low + r / 2 * 8, QUERIES - 1), at = k0 + j * 8 + pair + r % 2;
        if (NO_NUMBER(as_int(score[j][r])) && at < TOTAL) score[j][r] = dot_product(q + i * Q_S, k + at * K_S);
        score[j][r] = EXPONENT(score[j][r], i, at);
        most[r / 2] = fmax(most[r / 2], score[j][r]);
      }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float other;
      SWAP(other, most[h], 1);
      most[h] = fmax(most[h], other);
      SWAP(other, most[h], 2);
      most[h] = fmax(most[h], other);
      // A row that has seen no key yet must not make NaN of infinities.
      const float from = most[h] == -INFINITY ? 0.0f : most[h], faded = exp2(top[h] - from);
      top[h] = most[h];
      most[h] = from;
      sum[h] *= faded;
      ALONG_V {
        out[d][2 * h] *= faded;
        out[d][2 * h + 1] *= faded;
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        score[j][r] = exp2(score[j][r] - most[r / 2]);
        sum[r / 2] += score[j][r];
      }
    // Keys 2 * n and 2 * n + 1 of eight are numbers n and n + 4 along k, where the items have their weights.
    __local const float* values = (__local const float*)(tile + base + KEYS * K_PITCH) + pair * (DV + 4) + lane / 4;
    float few[DV / 8][4];
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
      uint high[4] = {as_uint(score[j][0]), as_uint(score[j][2]), as_uint(score[j][1]), as_uint(score[j][3])}, rest[4];
      SEPARATE(high, rest);
      if (j % 2 == 0) ALONG_V for (int r = 0; r < 4; ++r) few[d][r] = 0;
      ALONG_V {
        uint value[4], low_value[4];
        for (int r = 0; r < 4; ++r) value[r] = as_uint(values[(j * 8 + r % 2) * (DV + 4) + d * 8]);
        SEPARATE(value, low_value);
        ADD_LOW(few[d], high, rest, value, low_value);
        MULTIPLY(few[d], high, value);
      }
      if (j % 2 != 0) ALONG_V for (int r = 0; r < 4; ++r) out[d][r] += few[d][r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float other;
    SWAP(other, sum[h], 1);
    sum[h] += other;
    SWAP(other, sum[h], 2);
    sum[h] += other;
    const int i = low + h * 8;
    if (i >= QUERIES) continue;
    const float from = top[h] == -INFINITY ? 0.0f : top[h];
    ALONG_V {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float total = out[d][2 * h + c];
        if (NO_NUMBER(as_int(total)) && sum[h] != 0) {
          total = 0;
#pragma unroll 1
          for (int at = 0; at < end; ++at) {
            const float s = dot_product(q + i * Q_S, k + at * K_S);
            total = fma(exp2(EXPONENT(s, i, at) - from), v[at * V_S + d * 8 + pair + c], total);
          }
        }
        dst[i * Y_S + d * 8 + pair + c] = sum[h] == 0 ? 0.0f : total / sum[h];
      }
    }
  }
}
