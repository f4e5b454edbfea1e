// Products of matrices for GPUs: dst[z][m][n] = post(bia[m] + sum over k of a[z][m][k] * b[z][k][n]), and with CONV convolutions
// in two dimensions as such products, where k counts (ky, kx, c), n the output pixels of all images and z the groups.
//
// A work group computes a tile of TILE_M x TILE_N for one of SPLITS parts of k. Slices of both factors of depth TILE_K go from
// global memory through registers (loaded while the slice before is worked on) to local memory, of which there are BUFFERS. A
// work item holds WORK_M x WORK_N results; SLICES sets of work items share the depth of a slice and add up at the end.
// NDRange: (tiles of n * ITEMS, tiles of m, batch * SPLITS), local size (ITEMS, 1, 1), where
// ITEMS = TILE_M / WORK_M * TILE_N / WORK_N * SLICES.
//
// With SPLITS > 1 the sums go to part [SPLITS][Z][M][N] of ACC, and tiles_sum, whose NDRange is (SIZE rounded up, 1, 1), makes
// dst of them.
//
// Layout of matrices: element (m, k) of a is at A_BATCH(z) + m * A_M + k * A_K; (k, n) of b at B_BATCH(z) + k * B_K + n * B_N;
// one of A_M and A_K is 1, and one of B_K and B_N. dst is dense [Z][M][N], bia [M].
// Layout of convolutions: src and dst dense NCHW; a is wei as [GROUPS][KH][KW][C][A_K], C the input channels of a group, A_K at
// least M (the output channels of a group); bia [GROUPS * M].
//
// Tunables: TILE_M, TILE_N, TILE_K, WORK_M, WORK_N, SLICES, SPLITS, BUFFERS, all powers of two but SPLITS; WORK_M and WORK_N at
// most 8. A_V and B_V, the elements that are loaded at once, are given by alignment. Local memory:
// BUFFERS * TILE_K * (TILE_M + TILE_N + 2 pads) or SLICES / 2 * TILE_M * TILE_N elements of ACC, whichever is more.
#ifndef T
#define T float
#define ACC float
#define Z 1
#define M 1
#define N 1
#define K 1
#define A_M K
#define A_K 1
#define A_BATCH(z) 0
#define B_K N
#define B_N 1
#define B_BATCH(z) 0
#endif
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define TILE_K 16
#define WORK_M 4
#define WORK_N 4
#define SLICES 1
#define SPLITS 1
#define BUFFERS 1
#define A_V 1
#define B_V 1
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define WIDE_1(t) t
#define WIDE_2(t) CAT(t, 2)
#define WIDE_4(t) CAT(t, 4)
#define WIDE(t, v) CAT(WIDE_, v)(t)
#define CONVERT(t, v) CAT(convert_, WIDE(t, v))

#define LOCAL_M (TILE_M / WORK_M)
#define LOCAL_N (TILE_N / WORK_N)
#define CELLS (LOCAL_M * LOCAL_N)
#define ITEMS (CELLS * SLICES)
#define DEPTH (TILE_K / SLICES)
#if WORK_M >= 4
#define VM 4
#else
#define VM WORK_M
#endif
#if WORK_N >= 4
#define VN 4
#else
#define VN WORK_N
#endif
// Rows of local memory are padded where columns are written, so that these meet several banks.
#if defined(CONV) || A_M == 1
#define PITCH_M TILE_M
#else
#define PITCH_M (TILE_M + VM)
#endif
#if defined(CONV) || B_N == 1
#define PITCH_N TILE_N
#else
#define PITCH_N (TILE_N + VN)
#endif
#define BUFFER (TILE_K * (PITCH_M + PITCH_N))
#define SUMS (SLICES / 2 * TILE_M * TILE_N)
#define LOADS(elements) (((elements) + ITEMS - 1) / ITEMS)
#define A_LOADS LOADS(TILE_M * TILE_K / A_V)
#define B_LOADS LOADS(TILE_N * TILE_K / B_V)
#define WHOLE(elements) ((elements) % ITEMS == 0)

#ifdef CONV
#define P (OH * OW)
#define IMAGE (IH * IW)
#define N (BATCH * P)
#define K (C * KH * KW)
#define Z GROUPS
#define A_M 1
#define A_BATCH(z) ((z) * K * A_K)
#define MAPS (GROUPS * M)
#define DST(z, m, n) (((n) / P * MAPS + (z) * M + (m)) * P + (n) % P)
#define BIAS_AT(z, m) bia[(z) * M + (m)]
#define RUN P
#if KH == 1 && KW == 1 && STRIDE_Y == 1 && STRIDE_X == 1 && PAD_Y == 0 && PAD_X == 0 && IH == OH && IW == OW
#define DENSE
#endif
#else
#define DST(z, m, n) (((z) * M + (m)) * N + (n))
#define BIAS_AT(z, m) bia[m]
#define RUN N
#endif

#if defined(HAS_BIAS)
#define BIAS_ARG , __global const T* restrict bia
#define BIAS(z, m) ((ACC)BIAS_AT(z, m))
#else
#define BIAS_ARG
#define BIAS(z, m) ((ACC)0)
#endif

// The last elements of a row that is no multiple of the vector are never loaded as one: A_V and B_V divide what lies densely.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void tiles(
#if SPLITS > 1
    __global const T* restrict a, __global const T* restrict b, __global ACC* part
#else
    __global const T* restrict a, __global const T* restrict b BIAS_ARG, __global T* dst POST_ARGS
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

  WIDE(T, A_V) ra[A_LOADS];
  WIDE(T, B_V) rb[B_LOADS];
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
  const int image = (pixel / P * GROUPS + z) * (C * IMAGE);
#ifdef DENSE
  const int corner = image + pixel % P;
#else
  const int y0 = pixel % P / OW * STRIDE_Y - PAD_Y, x0 = pixel % OW * STRIDE_X - PAD_X;
  const int corner = image + y0 * IW + x0;
#endif
#else
  b += B_BATCH(z);
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

  ACC acc[WORK_M][WORK_N];
#pragma unroll
  for (int i = 0; i < WORK_M; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N; ++j) acc[i][j] = 0;

  // One turn more than slices: turn t loads slice t, then works on slice t - 1.
  int current = 0;
  for (int k0 = first; k0 < last + TILE_K; k0 += TILE_K) {
    if (k0 < last) {
#pragma unroll
      for (int i = 0; i < A_LOADS; ++i) {
        const int e = item + i * ITEMS;
        A_AT(e);
        const bool there = (WHOLE(TILE_M * TILE_K / A_V) || e < TILE_M * TILE_K / A_V) && IN_K(k0 + k);
        ra[i] = (WIDE(T, A_V))(0);
        if (there) ra[i] = *(__global const WIDE(T, A_V)*)(a + A_OFFSET(m, k0 + k));
      }
#if defined(CONV) && !defined(DENSE) && C % TILE_K == 0
      const int tap = k0 / C, ky = tap / KW * DILATION_Y, kx = tap % KW * DILATION_X;
      const bool inside = y0 + ky >= 0 && y0 + ky < IH && x0 + kx >= 0 && x0 + kx < IW;
      const int window = corner + ky * IW + kx + k0 % C * IMAGE;
#endif
#pragma unroll
      for (int i = 0; i < B_LOADS; ++i) {
        const int e = item + i * ITEMS;
        B_AT(e);
        const bool there = (WHOLE(TILE_N * TILE_K / B_V) || e < TILE_N * TILE_K / B_V) && IN_K(k0 + k);
        rb[i] = (WIDE(T, B_V))(0);
#if !defined(CONV)
        if (there) rb[i] = *(__global const WIDE(T, B_V)*)(b + B_OFFSET(n, k0 + k));
#elif defined(DENSE)
        if (there) rb[i] = *(__global const WIDE(T, B_V)*)(b + corner + (k0 + k) * IMAGE);
#elif C % TILE_K == 0
        if (there && inside) rb[i] = b[window + k * IMAGE];
#else
        const int tap = (k0 + k) / C, ky = tap / KW * DILATION_Y, kx = tap % KW * DILATION_X;
        const bool inside = y0 + ky >= 0 && y0 + ky < IH && x0 + kx >= 0 && x0 + kx < IW;
        if (there && inside) rb[i] = b[corner + ky * IW + kx + (k0 + k) % C * IMAGE];
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
          for (int j = 0; j < WORK_N; ++j) acc[i][j] = fma(av[i], bv[j], acc[i][j]);
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
          *(__local WIDE(ACC, A_V)*)(ta + k * PITCH_M + m) = CONVERT(ACC, A_V)(ra[i]);
#else
          ACC v[A_V] __attribute__((aligned(16)));
          *(WIDE(ACC, A_V)*)v = CONVERT(ACC, A_V)(ra[i]);
#pragma unroll
          for (int j = 0; j < A_V; ++j) ta[(k + j) * PITCH_M + m] = v[j];
#endif
        }
      }
#pragma unroll
      for (int i = 0; i < B_LOADS; ++i) {
        const int e = item + i * ITEMS;
        B_AT(e);
        if (WHOLE(TILE_N * TILE_K / B_V) || e < TILE_N * TILE_K / B_V) {
#if defined(CONV) || B_N == 1
          *(__local WIDE(ACC, B_V)*)(tb + k * PITCH_N + n) = CONVERT(ACC, B_V)(rb[i]);
#else
          ACC v[B_V] __attribute__((aligned(16)));
          *(WIDE(ACC, B_V)*)v = CONVERT(ACC, B_V)(rb[i]);
#pragma unroll
          for (int j = 0; j < B_V; ++j) tb[(k + j) * PITCH_N + n] = v[j];
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
    __local ACC* sums = tile + slice % half_way * (CELLS * WORK_M * WORK_N) + cell;
    if (slice >= half_way && slice < 2 * half_way) {
#pragma unroll
      for (int i = 0; i < WORK_M; ++i)
#pragma unroll
        for (int j = 0; j < WORK_N; ++j) sums[(i * WORK_N + j) * CELLS] = acc[i][j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice < half_way) {
#pragma unroll
      for (int i = 0; i < WORK_M; ++i)
#pragma unroll
        for (int j = 0; j < WORK_N; ++j) acc[i][j] += sums[(i * WORK_N + j) * CELLS];
    }
  }
  if (slice > 0) return;
#endif

#pragma unroll
  for (int i = 0; i < WORK_M; ++i) {
    const int m = m0 + i / VM * (LOCAL_M * VM) + ly * VM + i % VM;
    if (m >= M) continue;
#pragma unroll
    for (int j = 0; j < WORK_N; j += VN) {
      const int n = n0 + j * LOCAL_N + lx * VN;
#if SPLITS > 1
      __global ACC* to = part + ((split * Z + z) * M + m) * N + n;
#if N % VN == 0
      ACC v[VN] __attribute__((aligned(16)));
#pragma unroll
      for (int c = 0; c < VN; ++c) v[c] = acc[i][j + c];
      if (n < N) *(__global WIDE(ACC, VN)*)to = *(WIDE(ACC, VN)*)v;
#else
#pragma unroll
      for (int c = 0; c < VN; ++c)
        if (n + c < N) to[c] = acc[i][j + c];
#endif
#elif RUN % VN == 0
      // VN pixels or columns that start at a multiple of VN lie side by side, aligned.
      if (n < N) {
        const int o = DST(z, m, n);
        ACC v[VN] __attribute__((aligned(16)));
#pragma unroll
        for (int c = 0; c < VN; ++c) v[c] = POST(acc[i][j + c] + BIAS(z, m), o + c);
        *(__global WIDE(T, VN)*)(dst + o) = CONVERT(T, VN)(*(WIDE(ACC, VN)*)v);
      }
#else
#pragma unroll
      for (int c = 0; c < VN; ++c)
        if (n + c < N) {
          const int o = DST(z, m, n + c);
          dst[o] = (T)(POST(acc[i][j + c] + BIAS(z, m), o));
        }
#endif
    }
  }
}

#if SPLITS > 1
__kernel void tiles_sum(__global const ACC* restrict part BIAS_ARG, __global T* dst POST_ARGS) {
  const int e = get_global_id(0), n = e % N, m = e / N % M, z = e / N / M;
  if (e >= Z * M * N) return;
  ACC sum = 0;
#pragma unroll
  for (int s = 0; s < SPLITS; ++s) sum += part[s * (Z * M * N) + e];
  const int o = DST(z, m, n);
  dst[o] = (T)(POST(sum + BIAS(z, m), o));
}
#endif
