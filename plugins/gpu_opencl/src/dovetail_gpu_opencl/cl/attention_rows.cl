// Attention for CPUs: dst = softmax(SCALE * q k' + mask) v for each head, in one pass over the keys (Milakov and Gimelshein,
// 2018).
//
// A work item computes BLOCK_Q queries of one head. It goes through blocks of up to KEYS keys, whose transpose and whose values
// it copies into private memory; for ROWS queries at a time it computes the scores of a block, their exponentials, and what they
// add to the result, all in vectors along the keys or along the elements of the result.
// NDRange: (ceil(QUERIES / BLOCK_Q), HEADS, batch), local size 1.
//
// Layout: see heads.cl.
//
// Tunables: BLOCK_Q, a multiple of ROWS and an argument, up to MOST_Q; KEYS, a multiple of COLS; VECTORS; VEC (at most 8, see
// capabilities.py); COLS = VECTORS * VEC.
// Private memory: KEYS * (D + DV + ROWS) + MOST_Q * (DV + 2) elements of ACC, DV rounded up to COLS.
#include "heads.cl"
#ifndef MOST_Q
#define BLOCK_Q 4
#define MOST_Q 4
#define KEYS 32
#define VECTORS 2
#define VEC 8
#endif
#define ROWS 4
#define VACC CAT(ACC, VEC)
#define COLS (VECTORS * VEC)
#define WIDTH ((DV + COLS - 1) / COLS * COLS)

static ACC largest(const ACC* s, const int count) {
  VACC most = *(const VACC*)s;
  for (int j = VEC; j < count; j += VEC) most = fmax(most, *(const VACC*)(s + j));
  ACC found = -INFINITY;
  const ACC* lanes = (const ACC*)&most;
#pragma unroll
  for (int l = 0; l < VEC; ++l) found = fmax(found, lanes[l]);
  return found;
}

// exp of a vector x, of which no element is above 0. As 2^k times that of a fraction for floats, within 1e-7; drivers also look for
// numbers that are too large.
#define IS_float 1
#if CAT(IS_, ACC)
#define AS_VACC CAT(as_, VACC)
#define AS_INTS CAT(as_int, VEC)
static VACC power(const VACC x) {
  const VACC n = x * 1.4426950f + 12582912.0f, k = n - 12582912.0f;
  const VACC f = fma(x, (VACC)(1.9259629e-8f), fma(x, (VACC)(1.4426950f), -k)), g = f * f;
  const VACC high = (0.00015353333f * f + 0.0013398870f) * g + (0.009618438f * f + 0.055503324f);
  const VACC e = (high * (g * f) + (0.24022648f * g + (0.6931472f * f + 1.0f))) * AS_VACC((AS_INTS(n) + 127) << 23);
  return x < -87.0f ? (VACC)(0) : e;
}
#else
static VACC power(const VACC x) { return exp(x); }
#endif

static ACC exponentials(ACC* s, const int count, const ACC base) {
  VACC sum = (VACC)(0);
  for (int j = 0; j < count; j += VEC) {
    const VACC e = power(*(VACC*)(s + j) - base);
    *(VACC*)(s + j) = e;
    sum += e;
  }
  ACC found = 0;
  const ACC* lanes = (const ACC*)&sum;
#pragma unroll
  for (int l = 0; l < VEC; ++l) found += lanes[l];
  return found;
}

__kernel void attention_rows(__global const T* restrict q, __global const T* restrict k, __global const T* restrict v MASK_ARG
                             LENGTHS_ARG, __global T* restrict dst SIZES) {
  ACC keys[D * KEYS] __attribute__((aligned(64)));
  ACC values[KEYS * WIDTH] __attribute__((aligned(64)));
  ACC scores[ROWS * KEYS] __attribute__((aligned(64)));
  ACC out[MOST_Q * WIDTH] __attribute__((aligned(64)));
  ACC top[MOST_Q], sum[MOST_Q];
  const int first = get_global_id(0) * BLOCK_Q, head = get_global_id(1), batch = get_global_id(2);
  const int last = min(first + BLOCK_Q, QUERIES);
  q += batch * Q_B + head * Q_H;
  k += batch * K_B + head / SHARE * K_H;
  v += batch * V_B + head / SHARE * V_H;
  dst += batch * Y_B + head * Y_H;
  const int rows = (last - first + ROWS - 1) / ROWS * ROWS;
  for (int e = 0; e < rows * WIDTH; ++e) out[e] = 0;
  for (int i = 0; i < rows; ++i) {
    top[i] = -INFINITY;
    sum[i] = 0;
  }
  const int start = FIRST(batch), used = USED(batch), end = END(start + last - 1, used);
  const int begin = BEGIN(start + first);
  for (int k0 = begin; k0 < end; k0 += KEYS) {
    const int there = min(KEYS, used - k0), whole = (there + COLS - 1) / COLS * COLS;
    for (int j = 0; j < whole; ++j) {
      // Single elements: compilers would scatter vectors, which takes twice as long.
#pragma clang loop vectorize(disable)
      for (int d = 0; d < D; ++d) keys[d * KEYS + j] = j < there ? (ACC)LOAD_T(k, (k0 + j) * K_S + d) * SCALE : (ACC)0;
      for (int d = 0; d < WIDTH; ++d) values[j * WIDTH + d] = j < there && d < DV ? (ACC)LOAD_T(v, (k0 + j) * V_S + d) : (ACC)0;
    }
    for (int i0 = first; i0 < last; i0 += ROWS) {
      __global const T* own[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) own[r] = q + min(i0 + r, QUERIES - 1) * Q_S;
      for (int j0 = 0; j0 < whole; j0 += COLS) {
        VACC acc[ROWS][VECTORS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int c = 0; c < VECTORS; ++c) acc[r][c] = (VACC)(0);
        for (int d = 0; d < D; ++d) {
          VACC b[VECTORS];
#pragma unroll
          for (int c = 0; c < VECTORS; ++c) b[c] = *(VACC*)(keys + d * KEYS + j0 + c * VEC);
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const ACC x = (ACC)LOAD_T(own[r], d);
#pragma unroll
            for (int c = 0; c < VECTORS; ++c) acc[r][c] += x * b[c];
          }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int c = 0; c < VECTORS; ++c) *(VACC*)(scores + r * KEYS + j0 + c * VEC) = acc[r][c];
      }
      for (int r = 0; r < ROWS; ++r) {
        const int i = min(i0 + r, QUERIES - 1), row = i0 - first + r;
        ACC* s = scores + r * KEYS;
#ifdef SOFTCAP
        for (int j = 0; j < whole; j += VEC) *(VACC*)(s + j) = SOFTCAP * tanh(*(VACC*)(s + j) / SOFTCAP);
#endif
#ifdef HAS_MASK
        const int m0 = batch * M_B + head * M_H + i * M_S;
        if (M_K == 1 && k0 + there - 1 <= M_LAST)
          for (int j = 0; j < there; ++j) s[j] = MASKED(s[j], m0 + k0 + j);
        else
          for (int j = 0; j < there; ++j) s[j] = MASKED(s[j], m0 + min(k0 + j, M_LAST) * M_K);
#endif
        for (int j = 0; j < min(there, BEGIN(start + i) - k0); ++j) s[j] = -INFINITY;
        for (int j = max(0, END(start + i, used) - k0); j < there; ++j) s[j] = -INFINITY;
        for (int j = there; j < whole; ++j) s[j] = -INFINITY;
        const ACC now = fmax(top[row], largest(s, whole));
        const ACC base = now == -INFINITY ? (ACC)0 : now;
        const ACC factor = k0 > begin ? exp(top[row] - base) : (ACC)0;
        top[row] = now;
        sum[row] = sum[row] * factor + exponentials(s, whole, base);
        if (k0 > begin)
          for (int d = 0; d < WIDTH; d += VEC) *(VACC*)(out + row * WIDTH + d) *= factor;
      }
      for (int d0 = 0; d0 < WIDTH; d0 += COLS) {
        ACC* o = out + (i0 - first) * WIDTH + d0;
        VACC acc[ROWS][VECTORS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int c = 0; c < VECTORS; ++c) acc[r][c] = *(VACC*)(o + r * WIDTH + c * VEC);
        for (int j = 0; j < there; ++j) {
          VACC b[VECTORS];
#pragma unroll
          for (int c = 0; c < VECTORS; ++c) b[c] = *(VACC*)(values + j * WIDTH + d0 + c * VEC);
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const ACC x = scores[r * KEYS + j];
#pragma unroll
            for (int c = 0; c < VECTORS; ++c) acc[r][c] += x * b[c];
          }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int c = 0; c < VECTORS; ++c) *(VACC*)(o + r * WIDTH + c * VEC) = acc[r][c];
      }
    }
  }
  for (int i = first; i < last; ++i)
    for (int d = 0; d < DV; ++d) {
      const ACC total = sum[i - first];
      STORE_T(dst, i * Y_S + d, total == 0 ? (ACC)0 : out[(i - first) * WIDTH + d] / total);
    }
}
