// Products of matrices for GPUs: dst[z][m][n] = post(bia[m] + sum over k of a[z][m][k] * b[z][k][n]), and with CONV convolutions
// in up to three dimensions (with VOLUME) as such products, where k counts (kz, ky, kx, c), n the output pixels of all images and
// z the groups.
//
// A work group computes a tile of TILE_M x TILE_N for one of SPLITS parts of k. Slices of both factors of depth TILE_K go from
// global memory through registers (loaded while the slice before is worked on) to local memory, of which there are BUFFERS. A
// work item holds WORK_M x WORK_N results; SLICES sets of work items share the depth of a slice and add up at the end.
// NDRange: (tiles of n * ITEMS, tiles of m, batch * SPLITS), local size (ITEMS, 1, 1), where
// ITEMS = TILE_M / WORK_M * TILE_N / WORK_N * SLICES.
//
// With SPLITS > 1 the sums go to part. With FOLD the group that is the last of its tile adds them up, in their order: part is
// [SPLITS][tiles][TILE_M * TILE_N] of ACC. Else it is [SPLITS][Z][M][N], and tiles_sum, NDRange (Z * M * N rounded up), makes
// dst of it.
//
// Layout of matrices: element (m, k) of a is at A_BATCH(z) + m * A_M + k * A_K; (k, n) of b at B_BATCH(z) + k * B_K + n * B_N;
// one of A_M and A_K is 1, and one of B_K and B_N. dst is dense [Z][M][N], bia [M].
// With BLOCKS b is a matrix in blocks, Z is 1, see blocks_factor.cl.
// Layout of convolutions: src and dst dense NCHW, dst with INNERMOST dense NHWC; a is wei as [GROUPS][KD][KH][KW][C][A_K], C the
// input channels of a group, A_K at least M (the output channels of a group); bia [GROUPS * M].
//
// Tunables: TILE_M, TILE_N, TILE_K, WORK_M, WORK_N, SLICES, SPLITS, BUFFERS, all powers of two but SPLITS; WORK_M and WORK_N at
// most 8. A_V and B_V, the elements that are loaded at once, are given by alignment. Local memory:
// BUFFERS * TILE_K * (TILE_M + TILE_N + 2 pads) or SLICES / 2 * TILE_M * TILE_N elements of ACC, whichever is more.
#include "product.cl"
#include "volume.cl"
#ifdef BLOCKS
#include "blocks_factor.cl"
#else
#define B_ARG __global const T* restrict b
#define LOAD_B(n, k) LOAD(B_V, b + B_OFFSET(n, k))
#endif

#define LOCAL_M (TILE_M / WORK_M)
#define LOCAL_N (TILE_N / WORK_N)
#define CELLS (LOCAL_M * LOCAL_N)
#define ITEMS (CELLS * SLICES)
#define DEPTH (TILE_K / SLICES)
#if WORK_M < 4
#define VM 2
#else
#define VM 4
#endif
#if WORK_N == 2
#define VN 2
#elif WORK_N < 2
#define VN 1
#else
#define VN 4
#endif
#if WORK_M == 1
#undef VM
#define VM 1
#endif
// Rows of local memory are padded where columns are written, so that these meet several banks.
#define PAD(v) (TILE_K == 16 ? 8 : (v))
#if defined(CONV) || A_M == 1
#define PITCH_M TILE_M
#else
#define PITCH_M (TILE_M + PAD(VM))
#endif
#if defined(CONV) || B_N == 1
#define PITCH_N TILE_N
#else
#define PITCH_N (TILE_N + PAD(VN))
#endif
#define RESULTS (WORK_M * WORK_N)
// Where a factor is dense along k, an item loads four k side by side. Both factors take k in an order that puts what neighbouring
// items write into neighbouring rows, and so into several banks; it changes the order of a sum.
#if defined(CONV) || (A_M == 1 && B_N == 1)
#define ROW(k) (k)
#else
#define ROW(k) ((k) % 4 * (TILE_K / 4) + (k) / 4)
#endif
#define BUFFER (TILE_K * (PITCH_M + PITCH_N))
#define SUMS (SLICES / 2 * TILE_M * TILE_N)
#define LOADS(elements) (((elements) + ITEMS - 1) / ITEMS)
#define A_LOADS LOADS(TILE_M * TILE_K / A_V)
#define B_LOADS LOADS(TILE_N * TILE_K / B_V)
#define WHOLE(elements) ((elements) % ITEMS == 0)

// The last elements of a row that is not a multiple of the vector are never loaded as one: A_V and B_V divide what lies densely.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void tiles(
#if SPLITS == 1
    __global const T* restrict a, B_ARG BIAS_ARG, __global T* dst SIZES POST_ARGS
#elif defined(FOLD)
    __global const T* restrict a, B_ARG BIAS_ARG, __global T* dst, __global ACC* part,
    __global int* counters, const int counter SIZES POST_ARGS
#else
    __global const T* restrict a, B_ARG, __global ACC* part SIZES
#endif
) {
  __local ACC tile[BUFFERS * BUFFER > SUMS ? BUFFERS * BUFFER : SUMS] __attribute__((aligned(16)));
  const int item = get_local_id(0), slice = item / CELLS, cell = item % CELLS;
  const int lx = cell % LOCAL_N, ly = cell / LOCAL_N;
  const int n0 = get_group_id(0) * TILE_N, m0 = get_group_id(1) * TILE_M;
  const int z = get_group_id(2) / SPLITS, split = get_group_id(2) % SPLITS;
  const int steps = (K + TILE_K - 1) / TILE_K, share = (steps + SPLITS - 1) / SPLITS;
  const int first = split * share * TILE_K, last = min(K, first + share * TILE_K);
  a += A_BATCH(z);

  WIDE(ACC, A_V) ra[A_LOADS];
  WIDE(ACC, B_V) rb[B_LOADS];
#if defined(CONV) || A_M == 1
#define A_AT(e) const int m = (e) % (TILE_M / A_V) * A_V, k = (e) / (TILE_M / A_V)
#else
#define A_AT(e) const int m = (e) / (TILE_K / A_V), k = (e) % (TILE_K / A_V) * A_V
#endif
#if defined(CONV) || B_N == 1
#define B_AT(e) const int n = (e) % (TILE_N / B_V) * B_V, k = (e) / (TILE_N / B_V)
#else
#define B_AT(e) const int n = (e) / (TILE_K / B_V), k = (e) % (TILE_K / B_V) * B_V
#endif
#if defined(CONV) || A_M == 1
#define A_ROW(m) min(m0 + m, (M + A_V - 1) / A_V * A_V - A_V)
#else
#define A_ROW(m) (min(m0 + m, M - 1) * A_M)
#endif
#ifdef CONV
#define A_OFFSET(m, k) (A_ROW(m) + (k) * A_K)
  // Every work item loads one column of pixels.
  const int pixel = min(n0 + item % (TILE_N / B_V) * B_V, N - B_V);
  const int place = REMAINDER(pixel, P), image = (QUOTIENT(pixel, P) * GROUPS + z) * (C * IMAGE);
#ifdef DENSE
  const int corner = image + place;
#else
  const int flat = IN_SLICE(place), z0 = FIRST_Z(SLICE_OF(place));
  const int y0 = QUOTIENT(flat, OW) * STRIDE_Y - PAD_Y, x0 = REMAINDER(flat, OW) * STRIDE_X - PAD_X;
  const int corner = image + (z0 * IH + y0) * IW + x0;
#endif
#else
#ifndef BLOCKS
  b += B_BATCH(z);
#endif
#if A_M == 1
#define A_OFFSET(m, k) (A_ROW(m) + (k) * A_K)
#else
#define A_OFFSET(m, k) (A_ROW(m) + (k))
#endif
#if B_N == 1
#define B_OFFSET(n, k) (min(n0 + n, (N + B_V - 1) / B_V * B_V - B_V) + (k) * B_K)
#else
#define B_OFFSET(n, k) (min(n0 + n, N - 1) * B_N + (k))
#endif
#endif

#if K % TILE_K == 0
#define IN_K(k) 1
#else
#define IN_K(k) ((k) < last)
#endif

  ACC acc[RESULTS];
#pragma unroll
  for (int r = 0; r < RESULTS; ++r) acc[r] = 0;

  // One turn more than slices: turn t loads slice t, then works on slice t - 1.
  int current = 0;
  for (int k0 = first; k0 < last + TILE_K; k0 += TILE_K) {
    if (k0 < last) {
#pragma unroll
      for (int i = 0; i < A_LOADS; ++i) {
        const int e = item + i * ITEMS;
        A_AT(e);
        const bool there = (WHOLE(TILE_M * TILE_K / A_V) || e < TILE_M * TILE_K / A_V) && IN_K(k0 + k);
        ra[i] = (WIDE(ACC, A_V))(0);
        if (there) ra[i] = LOAD(A_V, a + A_OFFSET(m, k0 + k));
      }
#if defined(CONV) && !defined(DENSE) && C % TILE_K == 0
      const int tap = k0 / C, kz = TAP_Z(tap), ky = TAP_Y(tap), kx = TAP_X(tap);
      const bool inside = INSIDE(z0 + kz, y0 + ky, x0 + kx);
      const int window = corner + (kz * IH + ky) * IW + kx + k0 % C * IMAGE;
#endif
#pragma unroll
      for (int i = 0; i < B_LOADS; ++i) {
        const int e = item + i * ITEMS;
        B_AT(e);
        const bool there = (WHOLE(TILE_N * TILE_K / B_V) || e < TILE_N * TILE_K / B_V) && IN_K(k0 + k);
        rb[i] = (WIDE(ACC, B_V))(0);
#if !defined(CONV)
        if (there) rb[i] = LOAD_B(n, k0 + k);
#elif defined(DENSE)
        if (there) rb[i] = LOAD(B_V, b + corner + (k0 + k) * IMAGE);
#elif C % TILE_K == 0
        if (there && inside) rb[i] = LOAD_T(b, window + k * IMAGE);
#else
        const int tap = (k0 + k) / C, kz = TAP_Z(tap), ky = TAP_Y(tap), kx = TAP_X(tap);
        const bool inside = INSIDE(z0 + kz, y0 + ky, x0 + kx);
        if (there && inside) rb[i] = LOAD_T(b, corner + (kz * IH + ky) * IW + kx + (k0 + k) % C * IMAGE);
#endif
      }
    }
    if (k0 > first) {
      __local const ACC* ta = tile + current * BUFFER + slice * DEPTH * PITCH_M + ly * VM;
      __local const ACC* tb = tile + current * BUFFER + TILE_K * PITCH_M + slice * DEPTH * PITCH_N + lx * VN;
#pragma unroll
      for (int k = 0; k < DEPTH; ++k) {
        ACC av[WORK_M] __attribute__((aligned(16))), bv[WORK_N] __attribute__((aligned(16)));
#pragma unroll
        for (int i = 0; i < WORK_M; i += VM)
          *(WIDE(ACC, VM)*)(av + i) = *(__local const WIDE(ACC, VM)*)(ta + k * PITCH_M + i * LOCAL_M);
#pragma unroll
        for (int j = 0; j < WORK_N; j += VN)
          *(WIDE(ACC, VN)*)(bv + j) = *(__local const WIDE(ACC, VN)*)(tb + k * PITCH_N + j * LOCAL_N);
#pragma unroll
        for (int i = 0; i < WORK_M; ++i)
#pragma unroll
          for (int j = 0; j < WORK_N; ++j) acc[i * WORK_N + j] = fma(av[i], bv[j], acc[i * WORK_N + j]);
      }
      if (BUFFERS == 1) barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (k0 < last) {
      if (BUFFERS == 2) current = 1 - current;
      __local ACC* ta = tile + current * BUFFER;
      __local ACC* tb = ta + TILE_K * PITCH_M;
#pragma unroll
      for (int i = 0; i < A_LOADS; ++i) {
        const int e = item + i * ITEMS;
        A_AT(e);
        if (WHOLE(TILE_M * TILE_K / A_V) || e < TILE_M * TILE_K / A_V) {
#if defined(CONV) || A_M == 1
          *(__local WIDE(ACC, A_V)*)(ta + ROW(k) * PITCH_M + m) = ra[i];
#else
          ACC v[A_V] __attribute__((aligned(16)));
          *(WIDE(ACC, A_V)*)v = ra[i];
#pragma unroll
          for (int j = 0; j < A_V; ++j) ta[ROW(k + j) * PITCH_M + m] = v[j];
#endif
        }
      }
#pragma unroll
      for (int i = 0; i < B_LOADS; ++i) {
        const int e = item + i * ITEMS;
        B_AT(e);
        if (WHOLE(TILE_N * TILE_K / B_V) || e < TILE_N * TILE_K / B_V) {
#if defined(CONV) || B_N == 1
          *(__local WIDE(ACC, B_V)*)(tb + ROW(k) * PITCH_N + n) = rb[i];
#else
          ACC v[B_V] __attribute__((aligned(16)));
          *(WIDE(ACC, B_V)*)v = rb[i];
#pragma unroll
          for (int j = 0; j < B_V; ++j) tb[ROW(k + j) * PITCH_N + n] = v[j];
#endif
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

#if SLICES > 1
  // The upper half of the slices hands its sums to the lower half, until one is left.
#pragma unroll
  for (int half_way = SLICES / 2; half_way > 0; half_way /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    __local ACC* sums = tile + slice % half_way * (CELLS * RESULTS) + cell;
    if (slice >= half_way && slice < 2 * half_way) {
#pragma unroll
      for (int r = 0; r < RESULTS; ++r) sums[r * CELLS] = acc[r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice < half_way) {
#pragma unroll
      for (int r = 0; r < RESULTS; ++r) acc[r] += sums[r * CELLS];
    }
  }
#endif

#if SPLITS > 1 && defined(FOLD)
  __local int finished;
  __global ACC* sums_at = part + TILE_NUMBER * (TILE_M * TILE_N) + cell;
#pragma unroll
  for (int r = 0; r < RESULTS; ++r)
    if (slice == 0) sums_at[split * (TILES * TILE_M * TILE_N) + r * CELLS] = acc[r];
  FENCE;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) finished = atomic_inc(counters + counter + TILE_NUMBER);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (finished < SPLITS - 1) return;
  FENCE;
  if (item == 0) counters[counter + TILE_NUMBER] = 0;
#pragma unroll
  for (int r = 0; r < RESULTS; ++r) {
    acc[r] = 0;
#pragma unroll
    for (int s = 0; s < SPLITS; ++s) acc[r] += sums_at[s * (TILES * TILE_M * TILE_N) + r * CELLS];
  }
#endif
#if SLICES > 1
  if (slice > 0) return;
#endif

#if defined(INNERMOST) && (SPLITS == 1 || defined(FOLD))
  // Results of VM output channels, which are adjacent.
#pragma unroll
  for (int r = 0; r < WORK_N * (WORK_M / VM); ++r) {
    const int j = r % WORK_N, i = r / WORK_N * VM, m = m0 + i * LOCAL_M + ly * VM,
        n = n0 + j / VN * (LOCAL_N * VN) + lx * VN + j % VN;
    if (n >= N) continue;
    const int o = DST(z, m, n);
#if M % VM == 0
    if (m >= M) continue;
    ACC v[VM] __attribute__((aligned(16)));
#pragma unroll
    for (int c = 0; c < VM; ++c) v[c] = POST(acc[(i + c) * WORK_N + j] + BIAS(z, m + c), o + c);
    STORE(VM, dst + o, *(WIDE(ACC, VM)*)v);
#else
#pragma unroll
    for (int c = 0; c < VM; ++c)
      if (m + c < M) STORE_T(dst, o + c, POST(acc[(i + c) * WORK_N + j] + BIAS(z, m + c), o + c));
#endif
  }
#else
  // Results in runs of VN that are adjacent.
#pragma unroll
  for (int r = 0; r < RESULTS; r += VN) {
    const int i = r / WORK_N, m = m0 + i / VM * (LOCAL_M * VM) + ly * VM + i % VM;
    const int n = n0 + r % WORK_N * LOCAL_N + lx * VN;
    if (m >= M) continue;
#if SPLITS > 1 && !defined(FOLD)
    __global ACC* to = part + ((split * Z + z) * M + m) * N + n;
#if RUN_V % VN == 0
    ACC v[VN] __attribute__((aligned(16)));
#pragma unroll
    for (int c = 0; c < VN; ++c) v[c] = acc[r + c];
    if (n < N) *(__global WIDE(ACC, VN)*)to = *(WIDE(ACC, VN)*)v;
#else
#pragma unroll
    for (int c = 0; c < VN; ++c)
      if (n + c < N) to[c] = acc[r + c];
#endif
#elif RUN_V % VN == 0
    // VN pixels or columns that start at a multiple of VN are adjacent and aligned.
    if (n < N) {
      const int o = DST(z, m, n);
      ACC v[VN] __attribute__((aligned(16)));
#pragma unroll
      for (int c = 0; c < VN; ++c) v[c] = POST(acc[r + c] + BIAS(z, m), o + c);
      STORE(VN, dst + o, *(WIDE(ACC, VN)*)v);
    }
#else
#pragma unroll
    for (int c = 0; c < VN; ++c)
      if (n + c < N) {
        const int o = DST(z, m, n + c);
        STORE_T(dst, o, POST(acc[r + c] + BIAS(z, m), o));
      }
#endif
  }
#endif
}

#if SPLITS > 1 && !defined(FOLD)
__kernel void tiles_sum(__global const ACC* restrict part BIAS_ARG, __global T* dst SIZES POST_ARGS) {
  const int e = get_global_id(0), n = e % N, m = e / N % M, z = e / N / M;
  if (e >= Z * M * N) return;
  ACC sum = 0;
#pragma unroll
  for (int s = 0; s < SPLITS; ++s) sum += part[s * (Z * M * N) + e];
  const int o = DST(z, m, n);
  STORE_T(dst, o, POST(sum + BIAS(z, m), o));
}
#endif
