// Products of matrices as in tiles.cl on matrix units of NVIDIA GPUs, by mma.sync (PTX ISA, "Matrix multiply-accumulate").
//
// Factors are rounded to TF32 (MATRIX 1), BF16 (2, exact where T is bfloat16) or FP16 (3, exact where T is half); sums are f32.
// Local memory holds words of 32 bits: a rounded element, or PACK = 2 neighbours along k in 16 bits, the lower in the low half. A
// factor with A_WORDS or B_WORDS is in global memory as such words, dense along x, element k at row k / PACK, of zeros where k is
// odd and ends.
//
// A work group computes a tile of TILE_M x TILE_N for one of SPLITS parts of k. Slices of both factors of depth TILE_K go through
// registers, loaded while the slice before is worked on, to local memory, of which there are BUFFERS. A sub-group of 32 items
// holds WORK_M x WORK_N results; SLICES sets of sub-groups share the depth of a slice. Results go through local memory, where
// slices are added up. With SPLITS > 1 the group that is the last of its tile adds those up in their order (FOLD).
// NDRange: (tiles of n * ITEMS, tiles of m, batch * SPLITS), local size (ITEMS, 1, 1), where
// ITEMS = TILE_M / WORK_M * TILE_N / WORK_N * SLICES * 32.
//
// Layout: as in tiles.cl; part is [SPLITS][tiles][TILE_M * TILE_N]. Rows of local memory are padded so that the 32 words of a
// fragment lie in 32 banks.
//
// Tunables: TILE_M, WORK_M (multiples of 16), TILE_N, WORK_N (of 8, TILE_N at least 16), TILE_K (SLICES times 8 PACK), SLICES,
// SPLITS, BUFFERS. A_V and B_V, the elements that are loaded at once, are given by alignment. Local memory, in words: BUFFERS *
// TILE_K / PACK * (TILE_M + TILE_N + 16), or SLICES * TILE_M * (TILE_N + 8), if that is more.
#include "product.cl"

#ifndef MATRIX
#define MATRIX 1
#define TILE_N 64
#undef WORK_M
#define WORK_M 32
#undef WORK_N
#define WORK_N 32
#endif
#if MATRIX == 1
#define PACK 1
#define FORMAT "m16n8k8.row.col.f32.tf32.tf32.f32"
#elif MATRIX == 2
#define PACK 2
#define FORMAT "m16n8k16.row.col.f32.bf16.bf16.f32"
#define PAIR "cvt.rn.bf16x2.f32 %0, %1, %2;"
#else
#define PACK 2
#define FORMAT "m16n8k16.row.col.f32.f16.f16.f32"
#define PAIR "cvt.rn.f16x2.f32 %0, %1, %2;"
#endif
// Tests put other definitions in place of these.
#ifndef MULTIPLY
#define EXCHANGE
static uint rounded(const float low, const float high) {
  uint bits;
#if MATRIX == 1
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(low));
#else
  asm(PAIR : "=r"(bits) : "f"(high), "f"(low));
#endif
  return bits;
}
#define MULTIPLY(c, a, b)                                                                           \
  asm("mma.sync.aligned." FORMAT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                      \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#endif
// Values in registers between global and local memory: halves and bfloat16 as they are, other elements as float.
#if (defined(T_IS_HALF) && MATRIX == 3) || (defined(T_IS_BFLOAT16) && MATRIX == 2)
#define REG ushort
#define LOAD_REG(v, p) (*(__global const WIDE(ushort, v)*)(p))
#define WORD_OF(low, high) ((uint)(low) | (uint)(high) << 16)
#else
#define REG float
#define LOAD_REG(v, p) LOAD(v, p)
#define WORD_OF(low, high) rounded(low, high)
#endif

#define SUB_GROUP 32
#define LOCAL_M (TILE_M / WORK_M)
#define LOCAL_N (TILE_N / WORK_N)
#define CELLS (LOCAL_M * LOCAL_N * SUB_GROUP)
#define ITEMS (CELLS * SLICES)
#define ROWS (TILE_K / PACK)
#define DEPTH (ROWS / SLICES)
#define PITCH_M (TILE_M + 8)
#define PITCH_N (TILE_N + 8)
#define BUFFER (ROWS * (PITCH_M + PITCH_N))
#define SUMS (SLICES * TILE_M * PITCH_N)
#define WORDS (BUFFERS * BUFFER > SUMS ? BUFFERS * BUFFER : SUMS)

// An item loads PARTS vectors of V elements: PACK neighbours along k of a factor that is dense across k, or KS elements along k.
#if defined(CONV) || A_M == 1
#define A_ACROSS
#endif
#if defined(CONV) || B_N == 1
#define B_ACROSS
#endif
#ifdef A_WORDS
#define A_TYPE uint
#define A_PARTS 1
#else
#define A_TYPE REG
#if defined(A_ACROSS) || A_V < PACK
#define A_PARTS PACK
#else
#define A_PARTS 1
#endif
#endif
#ifdef B_WORDS
#define B_TYPE uint
#define B_PARTS 1
#else
#define B_TYPE REG
#if defined(B_ACROSS) || B_V < PACK
#define B_PARTS PACK
#else
#define B_PARTS 1
#endif
#endif
#define LOADS(count) (((count) + ITEMS - 1) / ITEMS)
#define WITHIN(e, count) ((count) % ITEMS == 0 || (e) < (count))
#ifdef A_ACROSS
#define A_COUNT (TILE_M / A_V * ROWS)
#define A_AT(e) const int m = (e) % (TILE_M / A_V) * A_V, k = (e) / (TILE_M / A_V) * PACK
#else
#define A_KS (A_V * A_PARTS)
#define A_COUNT (TILE_M * (TILE_K / A_KS))
#define A_AT(e) const int m = (e) / (TILE_K / A_KS), k = (e) % (TILE_K / A_KS) * A_KS
#endif
#ifdef B_ACROSS
#define B_COUNT (TILE_N / B_V * ROWS)
#define B_AT(e) const int n = (e) % (TILE_N / B_V) * B_V, k = (e) / (TILE_N / B_V) * PACK
#else
#define B_KS (B_V * B_PARTS)
#define B_COUNT (TILE_N * (TILE_K / B_KS))
#define B_AT(e) const int n = (e) / (TILE_K / B_KS), k = (e) % (TILE_K / B_KS) * B_KS
#endif
// Where a factor is dense along k, both take rows in an order that puts what neighbouring items write into neighbouring rows.
#if defined(A_ACROSS) && defined(B_ACROSS)
#define ROW(r) (r)
#else
#define ROW(r) ((r) % (4 / PACK) * (ROWS * PACK / 4) + (r) / (4 / PACK))
#endif
#if K % TILE_K == 0
#define IN_K(k) 1
#else
#define IN_K(k) ((k) < last)
#endif
// Where the elements of part p of a load start.
#ifdef A_WORDS
#define A_OFFSET(m, k, p) (min(m0 + m, (M + A_V - 1) / A_V * A_V - A_V) + (k) / PACK * A_K)
#elif defined(A_ACROSS)
#define A_OFFSET(m, k, p) (min(m0 + m, (M + A_V - 1) / A_V * A_V - A_V) + ((k) + (p)) * A_K)
#else
#define A_OFFSET(m, k, p) (min(m0 + m, M - 1) * A_M + (k) + (p) * A_V)
#endif
#ifdef B_WORDS
#define B_OFFSET(n, k, p) (min(n0 + n, (N + B_V - 1) / B_V * B_V - B_V) + (k) / PACK * B_K)
#elif defined(B_ACROSS)
#define B_OFFSET(n, k, p) (min(n0 + n, (N + B_V - 1) / B_V * B_V - B_V) + ((k) + (p)) * B_K)
#else
#define B_OFFSET(n, k, p) (min(n0 + n, N - 1) * B_N + (k) + (p) * B_V)
#endif
// The element along k that a part starts with: elements beyond k are not loaded.
#ifdef A_ACROSS
#define A_AHEAD(p) (p)
#else
#define A_AHEAD(p) ((p) * A_V)
#endif
#ifdef B_ACROSS
#define B_AHEAD(p) (p)
#else
#define B_AHEAD(p) ((p) * B_V)
#endif
#if defined(CONV) && C % PACK == 0
#define TAP(k, p) ((k) / C)
#define CHANNEL(k, p) ((k) % C + (p))
#else
#define TAP(k, p) (((k) + (p)) / C)
#define CHANNEL(k, p) (((k) + (p)) % C)
#endif

#ifdef A_WORDS
#define A_ELEMENT uint
#define A_LOAD(p) (*(__global const WIDE(uint, A_V)*)(p))
#define A_WORD(low, high) (low)
#else
#define A_ELEMENT T
#define A_LOAD(p) LOAD_REG(A_V, p)
#define A_WORD(low, high) WORD_OF(low, high)
#endif
#ifdef B_WORDS
#define B_ELEMENT uint
#define B_LOAD(p) (*(__global const WIDE(uint, B_V)*)(p))
#define B_WORD(low, high) (low)
#else
#define B_ELEMENT T
#define B_LOAD(p) LOAD_REG(B_V, p)
#define B_WORD(low, high) WORD_OF(low, high)
#endif
#define TOTAL (TILE_M * TILE_N)
// Results that an item takes at once out of local memory: pixels or columns that are adjacent and aligned.
#if RUN_V == 4 && TOTAL % (ITEMS * 4) == 0
#define VO 4
#elif RUN_V >= 2 && TOTAL % (ITEMS * 2) == 0
#define VO 2
#else
#define VO 1
#endif
#define RESULT WIDE(float, VO)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void tiles_matrix(
    __global const A_ELEMENT* restrict a, __global const B_ELEMENT* restrict b BIAS_ARG, __global T* dst
#if SPLITS > 1
    , __global float* part, __global int* counters, const int counter
#endif
    SIZES POST_ARGS) {
  __local uint tile[WORDS] __attribute__((aligned(16)));
  EXCHANGE
  const int item = get_local_id(0), slice = item / CELLS, cell = item % CELLS, lane = cell % SUB_GROUP;
  const int lx = cell / SUB_GROUP % LOCAL_N * WORK_N + lane / 4, ly = cell / SUB_GROUP / LOCAL_N * WORK_M + lane / 4;
  const int n0 = get_group_id(0) * TILE_N, m0 = get_group_id(1) * TILE_M;
  const int z = get_group_id(2) / SPLITS, split = get_group_id(2) % SPLITS;
  const int steps = (K + TILE_K - 1) / TILE_K, share = (steps + SPLITS - 1) / SPLITS;
  const int first = split * share * TILE_K, last = min(K, first + share * TILE_K);
  a += A_BATCH(z);
#ifdef CONV
  // Every work item loads one column of pixels.
  const int pixel = min(n0 + item % (TILE_N / B_V) * B_V, N - B_V);
  const int place = REMAINDER(pixel, P), image = (QUOTIENT(pixel, P) * GROUPS + z) * (C * IMAGE);
#ifdef DENSE
  const int corner = image + place;
#else
  const int y0 = QUOTIENT(place, OW) * STRIDE_Y - PAD_Y, x0 = REMAINDER(place, OW) * STRIDE_X - PAD_X;
  const int corner = image + y0 * IW + x0;
#endif
#else
  b += B_BATCH(z);
#endif
  WIDE(A_TYPE, A_V) ra[LOADS(A_COUNT)][A_PARTS];
  WIDE(B_TYPE, B_V) rb[LOADS(B_COUNT)][B_PARTS];
  float acc[WORK_M / 16][WORK_N / 8][4];
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) acc[i][j][r] = 0;

  // One turn more than slices: turn t loads slice t, then works on slice t - 1.
  int current = 0;
  for (int k0 = first; k0 < last + TILE_K; k0 += TILE_K) {
    if (k0 < last) {
#pragma unroll
      for (int i = 0; i < LOADS(A_COUNT); ++i) {
        const int e = item + i * ITEMS;
        A_AT(e);
#pragma unroll
        for (int p = 0; p < A_PARTS; ++p) {
          ra[i][p] = (WIDE(A_TYPE, A_V))(0);
          if (WITHIN(e, A_COUNT) && IN_K(k0 + k + A_AHEAD(p))) ra[i][p] = A_LOAD(a + A_OFFSET(m, k0 + k, p));
        }
      }
#pragma unroll
      for (int i = 0; i < LOADS(B_COUNT); ++i) {
        const int e = item + i * ITEMS;
        B_AT(e);
#pragma unroll
        for (int p = 0; p < B_PARTS; ++p) {
          rb[i][p] = (WIDE(B_TYPE, B_V))(0);
          const bool there = WITHIN(e, B_COUNT) && IN_K(k0 + k + B_AHEAD(p));
#if !defined(CONV)
          if (there) rb[i][p] = B_LOAD(b + B_OFFSET(n, k0 + k, p));
#elif defined(DENSE)
          if (there) rb[i][p] = B_LOAD(b + corner + (k0 + k + p) * IMAGE);
#else
          const int tap = TAP(k0 + k, p), ky = tap / KW * DILATION_Y, kx = tap % KW * DILATION_X;
          const bool inside = y0 + ky >= 0 && y0 + ky < IH && x0 + kx >= 0 && x0 + kx < IW;
          if (there && inside) rb[i][p] = B_LOAD(b + corner + ky * IW + kx + CHANNEL(k0 + k, p) * IMAGE);
#endif
        }
      }
    }
    if (k0 > first) {
      __local const uint* ta = tile + current * BUFFER + (slice * DEPTH + lane % 4) * PITCH_M + ly;
      __local const uint* tb = tile + current * BUFFER + ROWS * PITCH_M + (slice * DEPTH + lane % 4) * PITCH_N + lx;
#pragma unroll
      for (int row = 0; row < DEPTH; row += 8) {
        uint fa[WORK_M / 16][4], fb[WORK_N / 8][2];
#pragma unroll
        for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
          for (int p = 0; p < 4; ++p) fa[i][p] = ta[(row + p / 2 * 4) * PITCH_M + i * 16 + p % 2 * 8];
#pragma unroll
        for (int j = 0; j < WORK_N / 8; ++j)
#pragma unroll
          for (int p = 0; p < 2; ++p) fb[j][p] = tb[(row + p * 4) * PITCH_N + j * 8];
#pragma unroll
        for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
          for (int j = 0; j < WORK_N / 8; ++j) MULTIPLY(acc[i][j], fa[i], fb[j]);
      }
      if (BUFFERS == 1) barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (k0 < last) {
      if (BUFFERS == 2) current = 1 - current;
      __local uint* ta = tile + current * BUFFER;
      __local uint* tb = ta + ROWS * PITCH_M;
#pragma unroll
      for (int i = 0; i < LOADS(A_COUNT); ++i) {
        const int e = item + i * ITEMS;
        A_AT(e);
        A_TYPE v[A_PARTS * A_V] __attribute__((aligned(16)));
#pragma unroll
        for (int p = 0; p < A_PARTS; ++p) *(WIDE(A_TYPE, A_V)*)(v + p * A_V) = ra[i][p];
        if (!WITHIN(e, A_COUNT)) continue;
#ifdef A_ACROSS
        uint w[A_V] __attribute__((aligned(16)));
#pragma unroll
        for (int j = 0; j < A_V; ++j) w[j] = A_WORD(v[j], v[(A_PARTS - 1) * A_V + j]);
        *(__local WIDE(uint, A_V)*)(ta + ROW(k / PACK) * PITCH_M + m) = *(WIDE(uint, A_V)*)w;
#else
#pragma unroll
        for (int j = 0; j < A_KS; j += PACK) ta[ROW((k + j) / PACK) * PITCH_M + m] = A_WORD(v[j], v[j + PACK - 1]);
#endif
      }
#pragma unroll
      for (int i = 0; i < LOADS(B_COUNT); ++i) {
        const int e = item + i * ITEMS;
        B_AT(e);
        B_TYPE v[B_PARTS * B_V] __attribute__((aligned(16)));
#pragma unroll
        for (int p = 0; p < B_PARTS; ++p) *(WIDE(B_TYPE, B_V)*)(v + p * B_V) = rb[i][p];
        if (!WITHIN(e, B_COUNT)) continue;
#ifdef B_ACROSS
        uint w[B_V] __attribute__((aligned(16)));
#pragma unroll
        for (int j = 0; j < B_V; ++j) w[j] = B_WORD(v[j], v[(B_PARTS - 1) * B_V + j]);
        *(__local WIDE(uint, B_V)*)(tb + ROW(k / PACK) * PITCH_N + n) = *(WIDE(uint, B_V)*)w;
#else
#pragma unroll
        for (int j = 0; j < B_KS; j += PACK) tb[ROW((k + j) / PACK) * PITCH_N + n] = B_WORD(v[j], v[j + PACK - 1]);
#endif
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

  // Each slice puts its results into local memory; then each item takes VO at a time.
  barrier(CLK_LOCAL_MEM_FENCE);
  __local float* sums = (__local float*)tile;
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        const int m = ly + i * 16 + r / 2 * 8, n = lx - lane / 4 + j * 8 + lane % 4 * 2;
        *(__local float2*)(sums + (slice * TILE_M + m) * PITCH_N + n) = (float2)(acc[i][j][r], acc[i][j][r + 1]);
      }
  barrier(CLK_LOCAL_MEM_FENCE);
#if SPLITS > 1
  __global float* own = part + TILE_NUMBER * TOTAL;
  for (int e = item * VO; e < TOTAL; e += ITEMS * VO) {
    RESULT sum = (RESULT)(0);
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
      sum += *(__local RESULT*)(sums + (s * TILE_M + e / TILE_N) * PITCH_N + e % TILE_N);
    *(__global RESULT*)(own + split * (TILES * TOTAL) + e) = sum;
  }
  __local int before;
  FENCE;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) before = atomic_inc(counters + counter + TILE_NUMBER);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (before < SPLITS - 1) return;
  FENCE;
  if (item == 0) counters[counter + TILE_NUMBER] = 0;
#endif
  for (int e = item * VO; e < TOTAL; e += ITEMS * VO) {
    const int m = m0 + e / TILE_N, n = n0 + e % TILE_N;
    if (m >= M || n >= N) continue;
    RESULT sum = (RESULT)(0);
#if SPLITS > 1
#pragma unroll
    for (int s = 0; s < SPLITS; ++s) sum += *(__global const RESULT*)(own + s * (TILES * TOTAL) + e);
#else
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
      sum += *(__local RESULT*)(sums + (s * TILE_M + e / TILE_N) * PITCH_N + e % TILE_N);
#endif
    const int o = DST(z, m, n);
    float v[VO] __attribute__((aligned(16)));
    *(RESULT*)v = sum;
#pragma unroll
    for (int c = 0; c < VO; ++c) v[c] = POST(v[c] + BIAS(z, m), o + c);
    STORE(VO, dst + o, *(RESULT*)v);
  }
}
