// Attention of one query a sample to a cache, for CPUs: dst = softmax(SCALE * q k' + mask) v for each head.
//
// With NEW the query comes with a key and a value, which the first head of those that share them writes into the cache; see
// new_rows.cl. A work item takes a head. It goes through blocks of KEYS keys: their scores, exponentials, and what they add to
// the result, in vectors along the elements of a head.
// NDRange: (HEADS, batch), local size 1.
//
// Layout: see heads.cl. Tunables: KEYS, a multiple of VEC; VEC (at most 8, see capabilities.py).
#include "heads.cl"
#include "rotation.cl"
#include "new_rows.cl"
#ifndef KEYS
#define KEYS 64
#define VEC 8
#endif
#define VACC CAT(ACC, VEC)
#define WHOLE (D / VEC * VEC)
#define V_WHOLE (DV / VEC * VEC)
#ifdef T_IS_HALF
#define LOADV(p) CAT(vload_half, VEC)(0, p)
#else
#ifdef T_IS_BFLOAT16
#define STORED ushort
#define WIDENED(v) CAT(as_, VACC)(CAT(convert_uint, VEC)(v) << 16)
#else
#define STORED T
#define WIDENED(v) CAT(convert_, VACC)(v)
#endif
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  CAT(STORED, VEC) v;
} PACKED;
#define LOADV(p) WIDENED(((__global const PACKED*)(p))->v)
#endif

static ACC across(const VACC v) {
  const ACC* lanes = (const ACC*)&v;
  ACC found = 0;
#pragma unroll
  for (int l = 0; l < VEC; ++l) found += lanes[l];
  return found;
}

__kernel void attention_token_rows(__global const T* restrict q NEW_ARGS, CACHE k, CACHE v MASK_ARG ROTATION_ARGS LENGTHS_ARG,
                                   __global T* restrict dst NEW_FAULT_ARGS) {
  const int head = get_global_id(0), batch = get_global_id(1);
  ACC query[D] __attribute__((aligned(64)));
  ACC scores[KEYS] __attribute__((aligned(64)));
  ACC out[DV] __attribute__((aligned(64)));
#ifdef NEW
  if (IS_WRONG(batch, 0)) {
    SET_FAULT;
    return;
  }
#endif
#ifdef HAS_MASK
  const int m0 = batch * M_B + head * M_H;
#endif
  const int place = FIRST(batch), used = USED(batch), begin = BEGIN(place);
  int end = END(place, used);
  q += batch * Q_B + head * Q_H;
  k += batch * K_B + head / SHARE * K_H;
  v += batch * V_B + head / SHARE * V_H;
  for (int d = 0; d < D; ++d) query[d] = TURNED(q, d, cosines, sines, ANGLE(batch, 0)) * SCALE;
  ACC top = -INFINITY, sum = 0;
#ifdef NEW
  // The new key is the last one that the query sees. Other heads may not have it in the cache yet.
  end = place;
  top = 0;
  {
    __global const T* row = new_k + batch * NK_B + head / SHARE * NK_H + NK_AT;
    for (int d = 0; d < D; ++d) {
      const ACC x = TURNED(row, d, cosines, sines, ANGLE(batch, 0));
      top += query[d] * x;
      out[d] = LOAD_T(new_v, batch * NV_B + head / SHARE * NV_H + NV_AT + d);
      if (head % SHARE == 0) {
        STORE_T(k, place * K_S + d, x);
        STORE_T(v, place * V_S + d, out[d]);
      }
    }
    top = MASKED(CAPPED(top), m0 + min(place, M_LAST) * M_K);
    sum = top == -INFINITY ? 0 : 1;
    if (sum == 0)
      for (int d = 0; d < DV; ++d) out[d] = 0;
  }
#else
  for (int d = 0; d < DV; ++d) out[d] = 0;
#endif
  for (int k0 = begin; k0 < end; k0 += KEYS) {
    const int there = min(KEYS, end - k0);
    for (int j = 0; j < there; ++j) {
      __global const T* row = k + (k0 + j) * K_S;
      VACC products = (VACC)(0);
#pragma unroll
      for (int d = 0; d < WHOLE; d += VEC) products += *(const VACC*)(query + d) * LOADV(row + d);
      ACC s = across(products);
      for (int d = WHOLE; d < D; ++d) s += query[d] * (ACC)LOAD_T(row, d);
      scores[j] = MASKED(CAPPED(s), m0 + min(k0 + j, M_LAST) * M_K);
    }
    for (int j = there; j < KEYS; ++j) scores[j] = -INFINITY;
    VACC most = *(const VACC*)scores;
    for (int j = VEC; j < KEYS; j += VEC) most = fmax(most, *(const VACC*)(scores + j));
    ACC now = top;
    const ACC* lanes = (const ACC*)&most;
#pragma unroll
    for (int l = 0; l < VEC; ++l) now = fmax(now, lanes[l]);
    const ACC base = now == -INFINITY ? (ACC)0 : now, factor = exp(top - base);
    top = now;
    VACC sums = (VACC)(0);
    for (int j = 0; j < KEYS; j += VEC) {
      const VACC e = exp(*(const VACC*)(scores + j) - base);
      *(VACC*)(scores + j) = e;
      sums += e;
    }
    sum = sum * factor + across(sums);
#if V_WHOLE > 0
    {
      VACC acc[V_WHOLE / VEC];
#pragma unroll
      for (int c = 0; c < V_WHOLE / VEC; ++c) acc[c] = *(const VACC*)(out + c * VEC) * factor;
      for (int j = 0; j < there; ++j) {
        __global const T* row = v + (k0 + j) * V_S;
        const ACC w = scores[j];
#pragma unroll
        for (int c = 0; c < V_WHOLE / VEC; ++c) acc[c] += w * LOADV(row + c * VEC);
      }
#pragma unroll
      for (int c = 0; c < V_WHOLE / VEC; ++c) *(VACC*)(out + c * VEC) = acc[c];
    }
#endif
    for (int d = V_WHOLE; d < DV; ++d) {
      ACC x = out[d] * factor;
      for (int j = 0; j < there; ++j) x += scores[j] * (ACC)LOAD_T(v, (k0 + j) * V_S + d);
      out[d] = x;
    }
  }
  for (int d = 0; d < DV; ++d) STORE_T(dst, batch * Y_B + head * Y_H + d, sum == 0 ? (ACC)0 : out[d] / sum);
}
