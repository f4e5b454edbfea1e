// Attention of one query a sample to a cache, for GPUs: dst = softmax(SCALE * q k' + mask) v for each head.
//
// With NEW the query comes with a key and a value, which are written into the cache; see new_rows.cl. A work group of GROUP
// items takes a split of the keys that a sample sees, for the SHARE heads that share them. It goes through blocks of TILE keys,
// which are in local memory; an item computes scores, then sums of an element of the values over every LINES-th key. With SPLITS
// > 1 the splits of a head count in counters, which are zeros before and after, who is the last: that group joins the results of
// all.
// NDRange: (SPLITS * GROUP, KV, batch), local size (GROUP, 1, 1), a multiple of 32 and at least DV.
//
// Layout: see heads.cl. part has batch * KV * SPLITS * SHARE * (DV + 2) elements of ACC. FENCE lets other work groups see what
// was written before; see product.cl.
//
// Tunables: GROUP, TILE (a multiple of 4), SPLITS. Local memory: TILE * (D + 4) + SHARE * (D + TILE + 1) elements of ACC, D
// rounded up to 4; and LINES * SHARE * (DV + 1).
#include "heads.cl"
#include "rotation.cl"
#include "new_rows.cl"
#ifndef GROUP
#define GROUP 128
#define TILE 64
#define SPLITS 1
#endif
#ifndef FENCE
#define FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif
#define ACC4 CAT(ACC, 4)
#define UP4(n) (((n) + 3) / 4 * 4)
#define WIDTH UP4(D)
#define PITCH (WIDTH + 4)
#define LINES (GROUP / DV)
#define ROWS ((TILE + LINES - 1) / LINES)
#ifdef NEW
#define IS_NEW(at) ((at) == place)
#define VALUE(at) (IS_NEW(at) ? (ACC)LOAD_T(new_v, d) : (ACC)LOAD_T(v, (at)*V_S + d))
#else
#define IS_NEW(at) 0
#define VALUE(at) (ACC) LOAD_T(v, (at)*V_S + d)
#endif
#define IS_ALIGNED (D % 4 == 0 && K_S % 4 == 0 && K_H % 4 == 0 && K_B % 4 == 0)
#ifdef T_IS_HALF
#define LOAD4(p) vloada_half4(0, p)
#elif defined(T_IS_BFLOAT16)
#define LOAD4(p) as_float4(convert_uint4(*(__global const ushort4*)(p)) << 16)
#else
#define LOAD4(p) CAT(convert_, ACC4)(*(__global const CAT(T, 4)*)(p))
#endif
#if SPLITS > 1
#define SPLIT_ARGS , __global ACC *part, __global int *counters, const int counter
#else
#define SPLIT_ARGS
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_token(
    __global const T* restrict q NEW_ARGS, CACHE k, CACHE v MASK_ARG ROTATION_ARGS LENGTHS_ARG,
    __global T* restrict dst SPLIT_ARGS NEW_FAULT_ARGS) {
  __local ACC queries[SHARE * WIDTH] __attribute__((aligned(16)));
  __local ACC keys[TILE * PITCH] __attribute__((aligned(16)));
  __local ACC weights[SHARE * TILE] __attribute__((aligned(16)));
  __local ACC tops[SHARE];
#if SPLITS > 1
  __local int is_last;
#endif
  __local ACC sums[LINES * SHARE * (DV + 1)];
  const int item = get_local_id(0), split = get_group_id(0), head = get_group_id(1), batch = get_group_id(2);
  // No group returns early: some drivers do not take that before a barrier.
#ifdef NEW
  const int is_wrong = IS_WRONG(batch, 0);
  if (is_wrong && item == 0) SET_FAULT;
#else
  const int is_wrong = 0;
#endif
  const int place = FIRST(batch), used = is_wrong ? 0 : USED(batch);
  const int begin = BEGIN(place), end = max(begin, END(place, used));
  const int length = ((end - begin + SPLITS - 1) / SPLITS + TILE - 1) / TILE * TILE;
  const int parts = max(1, (end - begin + max(length, 1) - 1) / max(length, 1));
  const int from = begin + split * length, to = min(end, from + length);
  k += batch * K_B + head * K_H;
  v += batch * V_B + head * V_H;

  for (int e = item; e < SHARE * WIDTH; e += GROUP) {
    const int d = e % WIDTH;
    __global const T* x = q + batch * Q_B + (head * SHARE + e / WIDTH) * Q_H;
    queries[e] = d < D && !is_wrong ? TURNED(x, d, cosines, sines, ANGLE(batch, 0)) * SCALE : (ACC)0;
  }
#ifdef NEW
  new_k += batch * NK_B + head * NK_H + NK_AT;
  new_v += batch * NV_B + head * NV_H + NV_AT;
  // This group alone has these rows among its keys. It takes them from where they come, so that nothing waits for the writes.
  if (from <= place && place < to) {
    for (int d = item; d < D; d += GROUP) STORE_T(k, place * K_S + d, TURNED(new_k, d, cosines, sines, ANGLE(batch, 0)));
    for (int d = item; d < DV; d += GROUP) STORE_T(v, place * V_S + d, LOAD_T(new_v, d));
  }
#endif

  const int d = item % DV, line = item / DV;
  ACC out[SHARE], top[SHARE], sum[SHARE];
#pragma unroll
  for (int h = 0; h < SHARE; ++h) {
    out[h] = sum[h] = 0;
    top[h] = -INFINITY;
  }
  for (int k0 = from; k0 < to; k0 += TILE) {
    const int there = min(TILE, to - k0);
#if IS_ALIGNED
#pragma unroll 8
    for (int e = item * 4; e < TILE * WIDTH; e += GROUP * 4) {
      const int j = e / WIDTH;
      if (!IS_NEW(k0 + j))
        *(__local ACC4*)(keys + j * PITCH + e % WIDTH) = j < there ? LOAD4(k + (k0 + j) * K_S + e % WIDTH) : (ACC4)(0);
    }
#else
    for (int e = item; e < TILE * WIDTH; e += GROUP) {
      const int j = e / WIDTH;
      if (!IS_NEW(k0 + j))
        keys[j * PITCH + e % WIDTH] = j < there && e % WIDTH < D ? (ACC)LOAD_T(k, (k0 + j) * K_S + e % WIDTH) : (ACC)0;
    }
#endif
#ifdef NEW
    if (k0 <= place && place < k0 + there)
      for (int e = item; e < WIDTH; e += GROUP)
        keys[(place - k0) * PITCH + e] = e < D ? TURNED(new_k, e, cosines, sines, ANGLE(batch, 0)) : (ACC)0;
#endif
    // Values are on their way while scores are computed.
    ACC values[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int j = line + r * LINES;
      values[r] = 0;
      if (line < LINES && j < there) values[r] = VALUE(k0 + j);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p = item; p < SHARE * TILE; p += GROUP) {
      const int h = p / TILE, j = p % TILE;
      ACC4 products = (ACC4)(0);
#pragma unroll 8
      for (int c = 0; c < WIDTH; c += 4)
        products = fma(*(__local const ACC4*)(queries + h * WIDTH + c), *(__local const ACC4*)(keys + j * PITCH + c), products);
      const ACC s = products.x + products.y + products.z + products.w;
      weights[p] = j < there ? MASKED(CAPPED(s), batch * M_B + (head * SHARE + h) * M_H + min(k0 + j, M_LAST) * M_K) : -INFINITY;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    ACC base[SHARE];
#pragma unroll
    for (int h = 0; h < SHARE; ++h) {
      ACC4 most = (ACC4)(-INFINITY);
#pragma unroll
      for (int j = 0; j < TILE; j += 4) most = fmax(most, *(__local const ACC4*)(weights + h * TILE + j));
      const ACC now = fmax(top[h], fmax(fmax(most.x, most.y), fmax(most.z, most.w)));
      base[h] = now == -INFINITY ? (ACC)0 : now;
      const ACC factor = exp(top[h] - base[h]);
      out[h] *= factor;
      sum[h] *= factor;
      top[h] = now;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int h = 0; h < SHARE; ++h)
      for (int j = item; j < TILE; j += GROUP) weights[h * TILE + j] = exp(weights[h * TILE + j] - base[h]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (line < LINES) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int j = line + r * LINES;
#pragma unroll
        for (int h = 0; h < SHARE; ++h) {
          const ACC w = j < TILE ? weights[h * TILE + j] : (ACC)0;
          sum[h] += w;
          out[h] = fma(w, values[r], out[h]);
        }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  if (line < LINES) {
#pragma unroll
    for (int h = 0; h < SHARE; ++h) {
      sums[(line * SHARE + h) * (DV + 1) + d] = out[h];
      if (d == 0) sums[(line * SHARE + h) * (DV + 1) + DV] = sum[h];
    }
  }
#pragma unroll
  for (int h = 0; h < SHARE; ++h)
    if (item == 0) tops[h] = top[h];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int e = item; e < SHARE * (DV + 1); e += GROUP)
    for (int l = 1; l < LINES; ++l) sums[e] += sums[l * SHARE * (DV + 1) + e];
  barrier(CLK_LOCAL_MEM_FENCE);
#if SPLITS > 1
  const int cell = batch * KV + head;
  part += cell * SPLITS * SHARE * (DV + 2);
  if (parts > 1 && split < parts) {
    for (int e = item; e < SHARE * (DV + 1); e += GROUP) part[split * SHARE * (DV + 2) + e] = sums[e];
    if (item < SHARE) part[split * SHARE * (DV + 2) + SHARE * (DV + 1) + item] = tops[item];
    FENCE;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) is_last = split < parts && (parts == 1 || atomic_inc(counters + counter + cell) == parts - 1);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (is_last && parts > 1) {
    FENCE;
    if (item == 0) counters[counter + cell] = 0;
    for (int e = item; e < SHARE * (DV + 1); e += GROUP) {
      const int h = e / (DV + 1);
      ACC most = -INFINITY, joined = 0;
      for (int s = 0; s < parts; ++s) most = fmax(most, part[s * SHARE * (DV + 2) + SHARE * (DV + 1) + h]);
      most = most == -INFINITY ? (ACC)0 : most;
      for (int s = 0; s < parts; ++s) {
        __global const ACC* one = part + s * SHARE * (DV + 2);
        joined = fma(one[e], exp(one[SHARE * (DV + 1) + h] - most), joined);
      }
      sums[e] = joined;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (!is_last) return;
#endif
  for (int e = item; e < SHARE * DV; e += GROUP) {
    const int h = e / DV;
    const ACC total = sums[h * (DV + 1) + DV];
    STORE_T(dst, batch * Y_B + (head * SHARE + h) * Y_H + e % DV, total == 0 ? (ACC)0 : sums[h * (DV + 1) + e % DV] / total);
  }
}
