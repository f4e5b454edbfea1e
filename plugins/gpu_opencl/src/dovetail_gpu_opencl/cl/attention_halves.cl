// Attention in halves, or with BFLOATS in bfloat16, for NVIDIA GPUs from sm_80 on: dst = softmax(SCALE * q k' + mask) v for each
// head, in one pass over the keys (Dao, FlashAttention-2, 2023). Scores and sums are f32, weights halves or bfloat16.
//
// A work group computes ROWS = 16 * SUB_GROUPS queries of one head, each sub-group 16. Blocks of KEYS keys and their values are
// copied to local memory while the block before is worked on.
// NDRange: (ceil(QUERIES / ROWS) * 32 * SUB_GROUPS, HEADS, batch), local size (32 * SUB_GROUPS, 1, 1).
//
// Layout: see heads.cl; keys begin at element K_0, values at V_0; D, DV and all steps are multiples of PART, 8 or 4. Fragments
// have 16 elements of a head, so zeros follow its last ones (WIDE is D with them, WIDE_V DV). Rows of local memory are padded by
// 16 bytes, so that the eight rows which ldmatrix reads at once are in 32 banks.
//
// Tunables: SUB_GROUPS, KEYS (a multiple of 16). Local memory: 2 * KEYS * (WIDE + WIDE_V + 16) * 2 bytes.
#include "attention_fragments.cl"
#include "halves.cl"
#define WIDE ((D + 15) / 16 * 16)
#define WIDE_V ((DV + 15) / 16 * 16)
#define K_PITCH ((WIDE + 8) * 2)
#define V_PITCH ((WIDE_V + 8) * 2)
#define STAGE_BYTES (KEYS * (K_PITCH + V_PITCH))
#ifdef BFLOATS
#define TWO(low, high) two_bfloats(low, high)
#else
#define TWO(low, high) two_halves(low, high)
#endif
#include "matrix_instructions.cl"
#ifndef PART
#define PART 8
#endif
#if PART == 8
#define COPY_PART COPY
#else
#define COPY_PART COPY_HALF
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_halves(
    __global const ushort* restrict q, __global const ushort* restrict k, __global const ushort* restrict v MASK_ARG,
    __global ushort* restrict dst SIZES) {
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
  uint query[WIDE / 16][4];
#pragma unroll
  for (int d = 0; d < WIDE / 16; ++d)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int at = d * 16 + r / 2 * 8 + pair;
      query[d][r] = WIDE == D || at < D ? *(__global const uint*)(q + min(low + r % 2 * 8, QUERIES - 1) * Q_S + at) : 0;
    }
  float out[WIDE_V / 8][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < WIDE_V / 8; ++j)
#pragma unroll
    for (int r = 0; r < 4; ++r) out[j][r] = 0;
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
      for (int e = item; e < KEYS * (WIDE / PART); e += ITEMS) {
        const int row = e / (WIDE / PART), key = turn * KEYS + row, at = e % (WIDE / PART) * PART, there = WIDE == D || at < D;
        COPY_PART(base + row * K_PITCH + at * 2, k + min(key, TOTAL - 1) * K_S + (there ? at : 0), key < TOTAL && there);
      }
      for (int e = item; e < KEYS * (WIDE_V / PART); e += ITEMS) {
        const int row = e / (WIDE_V / PART), key = turn * KEYS + row, at = e % (WIDE_V / PART) * PART,
            there = WIDE_V == DV || at < DV;
        COPY_PART(base + KEYS * K_PITCH + row * V_PITCH + at * 2, v + min(key, TOTAL - 1) * V_S + (there ? at : 0),
            key < TOTAL && there);
      }
    }
    COMMIT;
    if (turn == 0) continue;
    WAIT_FOR(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int base = (turn - 1) % 2 * STAGE_BYTES, k0 = (turn - 1) * KEYS;
    float score[KEYS / 8][4];
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) score[j][r] = 0;
#pragma unroll
    for (int d = 0; d < WIDE / 16; ++d)
#pragma unroll
      for (int j = 0; j < KEYS / 16; ++j) {
        uint keys[4];
        FRAGMENTS(keys, base + (j * 16 + lane / 16 * 8 + lane % 8) * K_PITCH + (d * 2 + lane / 8 % 2) * 16);
        MULTIPLY(score[2 * j], query[d], keys);
        MULTIPLY(score[2 * j + 1], query[d], keys + 2);
      }
    float most[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int i = min(low + r / 2 * 8, QUERIES - 1), at = k0 + j * 8 + pair + r % 2;
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
#pragma unroll
      for (int j = 0; j < WIDE_V / 8; ++j) {
        out[j][2 * h] *= faded;
        out[j][2 * h + 1] *= faded;
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        score[j][r] = exp2(score[j][r] - most[r / 2]);
        sum[r / 2] += score[j][r];
      }
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) {
      uint weights[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) weights[r] = TWO(score[2 * j + r / 2][r % 2 * 2], score[2 * j + r / 2][r % 2 * 2 + 1]);
#pragma unroll
      for (int d = 0; d < WIDE_V / 16; ++d) {
        uint values[4];
        TRANSPOSED(values, base + KEYS * K_PITCH + (j * 16 + lane % 16) * V_PITCH + (d * 2 + lane / 16) * 16);
        MULTIPLY(out[2 * d], weights, values);
        MULTIPLY(out[2 * d + 1], weights, values + 2);
      }
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
    const float share = sum[h] == 0 ? 0.0f : 1.0f / sum[h];
    if (low + h * 8 >= QUERIES) continue;
#pragma unroll
    for (int j = 0; j < WIDE_V / 8; ++j)
      if (WIDE_V == DV || j * 8 + pair < DV)
        *(__global uint*)(dst + (low + h * 8) * Y_S + j * 8 + pair) = TWO(out[j][2 * h] * share, out[j][2 * h + 1] * share);
  }
}
