// Products of halves, or with BFLOATS of bfloat16, on matrix units of NVIDIA GPUs from sm_80 on: dst[z][m][n] = post(bia[n] + sum
// over k of a[z][m][k] * b[z][n][k]).
//
// a is dense along k, or with CONV an image: then m counts the output pixels of all images, and k (kz, ky, kx, c). b is dense
// along k, in rows of B_N elements, of zeros from K on. Sums are f32. dst is dense along n: for convolutions channels are
// innermost (NHWC).
//
// A work group computes a tile of TILE_M x TILE_N for one of SPLITS parts of k, a sub-group of 32 items WORK_M x WORK_N of it.
// Slices of both factors of depth TILE_K are copied to local memory by cp.async, STAGES - 1 slices ahead of the one that is
// worked on. Images have a multiple of 8 channels, or 4.
// With SPLITS > 1 the group that is the last of its tile adds up the parts in their order.
// With STREAMS > 0 (stream-k; SPLITS is 1) there are so many groups. They share the slices of all tiles evenly: each works on a
// contiguous range of (tile, slice), one tile after the other. Of a tile that several groups share, the last to arrive adds up
// the parts.
// M, and for images IH, IW, S_B, S_Y and pads, with VOLUME ID and S_Z, are among the arguments SIZES, and the divisors OW and P,
// the pixels of an image, with VOLUME also PLANE = OH * OW. With SEVERAL, for 8-bit numbers only, N, K, Z, A_M, A_K and B_N are,
// too.
// With NORMALIZE, dst is between: norm[m][n] = (dst - mean) / sqrt(variance + EPSILON) * scale[n] + shift[n], with the statistics
// of row m. The group that is the last of TILE_M rows normalizes them. Then Z is 1, and SIZE is N.
// With FORMAT ("u8" or "s8", the format of a), factors are 8-bit numbers, two for each element of a and b here, and sums are int:
// byte_products.cl says what is added. K, C, A_M, B_N and TILE_K still count pairs of bytes. With DIRECT_1 the rows of b, B_ROWS
// in all, are in another order, and results are stored by byte_results.cl. With A_K rows of b are several parts of A_K pairs,
// each of which is multiplied with the same row of a.
// With FLOATS, factors are floats, multiplied as float_products.cl says. These sizes, and S_B, S_Y and S_X, count pairs of bytes,
// too.
// NDRange: (tiles of n * tiles of m * batch * SPLITS * ITEMS), or (STREAMS * ITEMS), local size ITEMS = TILE_M / WORK_M * TILE_N
// / WORK_N * 32.
//
// Layout: a row of a slice has TILE_K / 8 chunks of 16 bytes, whose places are exchanged by the row's number, so that the eight
// rows which ldmatrix reads at once are in 32 banks. part is [SPLITS][tiles][WORK_M / 16 * WORK_N / 8][ITEMS][4],
// or [STREAMS][2][WORK_M / 16 * WORK_N / 8][ITEMS][4]: a group shares at most two tiles, the one that it begins with, first, and
// the one that it ends with.
//
// Tunables: TILE_M, TILE_N, TILE_K (32 or 64), WORK_M, WORK_N (multiples of 16), STAGES (2 to 6), SPLITS, STREAMS. Local memory,
// in bytes:
// STAGES * (TILE_M + TILE_N) * TILE_K * 2 or, if that is more, ITEMS / 32 * 16 * (WORK_N + 8) * 4.
#include "halves.cl"
#include "volume.cl"
#ifndef T
#define T half
#define M 64
#define N 64
#define K 64
#define Z 1
#define A_M 64
#define B_N 64
#define A_BATCH(z) 0
#define B_BATCH(z) 0
#define SIZES
#define PASSED
#define RESULT_T float
#define STORE_V(v, p) (*(__global float8*)(p) = (v))
#define STORE_1(v, p, i) ((p)[i] = (v))
#endif
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define TILE_K 32
#define WORK_M 32
#define WORK_N 32
#define STAGES 4
#define SPLITS 1
#define STREAMS 0
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#define POST_V(s, o) (s)
#endif

#define SUB_GROUP 32
#define CHUNKS (TILE_K / 8)
#define LOCAL_N (TILE_N / WORK_N)
#define SUB_GROUPS (TILE_M / WORK_M * LOCAL_N)
#define ITEMS (SUB_GROUPS * SUB_GROUP)
#define AT_ONCE (ITEMS / CHUNKS)
#define LOADS(rows) (((rows) + AT_ONCE - 1) / AT_ONCE)
#define WITHIN(row, rows) ((rows) % AT_ONCE == 0 || (row) < (rows))
#define A_BYTES (TILE_M * TILE_K * 2)
#define STAGE_BYTES (A_BYTES + TILE_N * TILE_K * 2)
#define PITCH (WORK_N + 8)
#define SUM_BYTES (SUB_GROUPS * 16 * PITCH * 4)
#define BYTES (STAGES * STAGE_BYTES > SUM_BYTES ? STAGES * STAGE_BYTES : SUM_BYTES)
#if TILE_K == 64
#define PLACE(row, chunk) ((row) * 128 + (((chunk) ^ ((row) & 7)) << 4))
#else
#define PLACE(row, chunk) ((row) * 64 + (((chunk) ^ ((row) >> 1 & 3)) << 4))
#endif
#define TILES_M ((M + TILE_M - 1) / TILE_M)
#define TILES_N ((N + TILE_N - 1) / TILE_N)
#define TILES (TILES_M * TILES_N * Z)
#define STEPS ((K + TILE_K - 1) / TILE_K)
#define SHARE ((STEPS + SPLITS - 1) / SPLITS)
#define CELLS (WORK_M / 16 * (WORK_N / 8))
#if STREAMS > 0
// Slices of all tiles, in their order: the first `longer` groups have one more than `least`.
#define BEGIN_OF(group) ((group) * least + min(group, longer))
#define GROUP_OF(slice) \
  ((slice) < longer * (least + 1) ? (slice) / (least + 1) : longer + ((slice) - longer * (least + 1)) / max(least, 1))
#define LEAVE continue
#else
#define LEAVE return
#endif

#include "quotients.cl"
#include "byte_products.cl"
#include "matrix_instructions.cl"
#include "float_products.cl"
#ifdef NORMALIZE
#include "standardize.cl"
// Rows that a sub-group normalizes at once, in MOST_VECTORS * 8 registers an item where they are short: more would leave a
// compute unit with fewer groups that multiply.
#define MOST_VECTORS 8
#define OWN_ROWS ((TILE_M + SUB_GROUPS - 1) / SUB_GROUPS)
#define ROWS (OWN_ROWS * TURNS <= MOST_VECTORS ? OWN_ROWS : TURNS >= MOST_VECTORS ? 1 : MOST_VECTORS / TURNS)
#ifdef HAS_SHIFT
#define SHIFT_ARG , __global const P_T* restrict shift
#else
#define SHIFT_ARG
#endif
#endif
#ifndef B_ROWS
#define B_ROWS N
#endif
#if defined(A_K) || defined(SEVERAL)
#define IN_A(k) ((k) % A_K)
#else
#define IN_A(k) (k)
#endif
#ifndef SUM
#define SUM float
#define SUM2 float2
#define SUM4 float4
#endif
#ifndef FIRST_SUM
#define FIRST_SUM(c) 0
#endif
// Elements outside an image are zeros, with OUTSIDE those there, or with SURROUND each four the bytes of this number.
#ifdef SURROUND
#define SURROUND_COPY(place) *(__local uint4*)(tile + (place)) = (uint4)(surround)
#define SURROUND_COPY_HALF(place) *(__local uint2*)(tile + (place)) = (uint2)(surround)
#define COPY_IMAGE(copy, place, offset, there) \
  if (there)                                   \
    copy(place, a + (offset), true);           \
  else                                         \
    SURROUND_##copy(place)
#elif defined(OUTSIDE)
#define COPY_IMAGE(copy, place, offset, there) copy(place, (there) ? a + (offset) : OUTSIDE, true)
#else
#define COPY_IMAGE(copy, place, offset, there) copy(place, a + ((there) ? (offset) : 0), there)
#endif
#if STAGES == 2
#define WAIT WAIT_FOR(0)
#elif STAGES == 3
#define WAIT WAIT_FOR(1)
#elif STAGES == 4
#define WAIT WAIT_FOR(2)
#elif STAGES == 5
#define WAIT WAIT_FOR(3)
#else
#define WAIT WAIT_FOR(4)
#endif

#ifdef FORMAT
#define BIAS_ARG SUM_ARGS
#elif defined(BIAS_T)
#define BIAS_ARG , __global const BIAS_T* restrict bia
#else
#define BIAS_ARG
#endif
// How many of these groups were there before; the counter is zero again after the last.
static int counted(__global int* counter, const int groups) {
  const int before = atomic_inc(counter);
  if (before == groups - 1) *counter = 0;
  return before;
}
// KEPT is an operand of post-ops that is as large as the result. KEEP loads it for 16 rows, long before they are needed; not
// where rows begin at any address.
#if N % 8
#undef KEPT
#endif
#define KEEP(i)                                                                                             \
  for (int t = 0; t < WORK_N / 16; ++t) {                                                                   \
    const int e = lane + t * SUB_GROUP, m = m0 + ly + (i) * 16 + e / (WORK_N / 8);                          \
    const int n = n0 + lx + e % (WORK_N / 8) * 8;                                                           \
    if (m < M && n < N) kept[i][t] = *(__global const uint4*)(KEPT + (z * M + m) * N + n);                  \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void tiles_pipelined(
    __global const ushort* restrict a, __global const ushort* restrict b BIAS_ARG, __global RESULT_T* dst
#if SPLITS > 1 || STREAMS > 0
    , __global float4* part, __global int* counters, const int counter
#endif
#ifdef NORMALIZE
    , __global const P_T* restrict scale SHIFT_ARG, __global NORM_T* restrict norm, __global int* arrivals, const int arrival
#endif
    SIZES POST_ARGS) {
  __local uchar tile[BYTES] __attribute__((aligned(128)));
  EXCHANGE
#ifdef SUM_CONSTANTS
  SUM_CONSTANTS
#endif
#ifdef SURROUND
  const uint surround = SURROUND;
#endif
  const int item = get_local_id(0), lane = item % SUB_GROUP, sub_group = item / SUB_GROUP;
  const int ly = sub_group / LOCAL_N * WORK_M, lx = sub_group % LOCAL_N * WORK_N;
  const int row = item / CHUNKS, chunk = item % CHUNKS, group = get_group_id(0);
#if STREAMS > 0
  __global const ushort *const all_a = a, *const all_b = b;
  const int least = TILES * STEPS / STREAMS, longer = TILES * STEPS % STREAMS, end = BEGIN_OF(group + 1);
  for (int at = BEGIN_OF(group), steps; at < end; at += steps) {
  const int number = at / STEPS, first = at % STEPS;
  steps = min(STEPS - first, end - at);
  barrier(CLK_LOCAL_MEM_FENCE);  // other sub-groups may read the local memory for the tile before
#else
  const int number = group % TILES, split = group / TILES;
  const int first = split * SHARE, steps = min(STEPS, first + SHARE) - first;
#endif
  const int n0 = number % TILES_N * TILE_N, m0 = number / TILES_N % TILES_M * TILE_M;
#if defined(SEVERAL) || Z > 1
  const int z = number / (TILES_N * TILES_M);
#else
  const int z = 0;
#endif
#if STREAMS > 0
  a = all_a + A_BATCH(z);
  b = all_b + B_BATCH(z);
#else
  a += A_BATCH(z);
  b += B_BATCH(z);
#endif
#ifdef CONV
  int corner[LOADS(TILE_M)], z0[LOADS(TILE_M)], y0[LOADS(TILE_M)], x0[LOADS(TILE_M)];
#pragma unroll
  for (int i = 0; i < LOADS(TILE_M); ++i) {
    const int m = min(m0 + row + i * AT_ONCE, M - 1), whole = REMAINDER(m, P), pixel = IN_SLICE(whole);
    z0[i] = FIRST_Z(SLICE_OF(whole));
    y0[i] = QUOTIENT(pixel, OW) * STRIDE_Y - PAD_Y;
    x0[i] = REMAINDER(pixel, OW) * STRIDE_X - PAD_X;
    corner[i] = QUOTIENT(m, P) * S_B + z0[i] * S_Z + y0[i] * S_Y + x0[i] * S_X;
  }
#endif
#ifdef DIRECT_1
  const int column = min(n0 + lx + lane % 4 * WIDE, N - WIDE);
  int start[WIDE] __attribute__((aligned(16)));
#pragma unroll
  for (int c = 0; c < WIDE; c += 4) *(int4*)(start + c) = first == 0 ? START_4(column + c) : (int4)(0);
#endif
#ifdef KEPT_BYTES
  WORDS kept[WORK_M / 16][2];
#pragma unroll
  for (int i = 0; i < WORK_M / 8; ++i) PREFETCH(KEPT_BYTES + min(m0 + ly + i * 8 + lane / 4, M - 1) * N + column);
#endif
  SUM acc[WORK_M / 16][WORK_N / 8][4];
#if defined(FLOATS) && !defined(ROUNDED)
  float few[WORK_M / 16][WORK_N / 8][4];
#endif
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) acc[i][j][r] = FIRST_SUM(j * 2 + r % 2);

  // One turn for each slice, and STAGES - 1 before, which only copy.
  int ahead = 0, behind = 0;
  for (int turn = 1 - STAGES; turn < steps; ++turn) {
    if (turn >= 0) {
      WAIT;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (turn + STAGES - 1 < steps) {
      const int base = ahead * STAGE_BYTES, k = (first + turn + STAGES - 1) * TILE_K + chunk * 8;
#if defined(CONV) && C == 4
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int tap = IN_A(k + e * 4) / 4, kz = TAP_Z(tap), ky = TAP_Y(tap), kx = TAP_X(tap);
        const int offset = kz * S_Z + ky * S_Y + kx * S_X;
#pragma unroll
        for (int i = 0; i < LOADS(TILE_M); ++i) {
          if (!WITHIN(row + i * AT_ONCE, TILE_M)) continue;
          const int y = y0[i] + ky, x = x0[i] + kx;
          const bool there = k + e * 4 < K && INSIDE(z0[i] + kz, y, x);
          COPY_IMAGE(COPY_HALF, base + PLACE(row + i * AT_ONCE, chunk) + e * 8, corner[i] + offset, there);
        }
      }
#elif defined(CONV)
      const int tap = IN_A(k) / C, kz = TAP_Z(tap), ky = TAP_Y(tap), kx = TAP_X(tap);
      const int offset = kz * S_Z + ky * S_Y + kx * S_X + IN_A(k) % C;
#pragma unroll
      for (int i = 0; i < LOADS(TILE_M); ++i) {
        if (!WITHIN(row + i * AT_ONCE, TILE_M)) continue;
        const int y = y0[i] + ky, x = x0[i] + kx;
        const bool there = k < K && INSIDE(z0[i] + kz, y, x);
        COPY_IMAGE(COPY, base + PLACE(row + i * AT_ONCE, chunk), corner[i] + offset, there);
      }
#else
#pragma unroll
      for (int i = 0; i < LOADS(TILE_M); ++i) {
        if (!WITHIN(row + i * AT_ONCE, TILE_M)) continue;
        const bool there = K % TILE_K == 0 || k < K;
        COPY(base + PLACE(row + i * AT_ONCE, chunk), a + min(m0 + row + i * AT_ONCE, M - 1) * A_M + (there ? IN_A(k) : 0), there);
      }
#endif
#pragma unroll
      for (int i = 0; i < LOADS(TILE_N); ++i) {
        if (!WITHIN(row + i * AT_ONCE, TILE_N)) continue;
        COPY(base + A_BYTES + PLACE(row + i * AT_ONCE, chunk), b + min(n0 + row + i * AT_ONCE, B_ROWS - 1) * B_N + k, true);
      }
      ahead = ahead == STAGES - 1 ? 0 : ahead + 1;
    }
    COMMIT;
    if (turn < 0) continue;
    const int base = behind * STAGE_BYTES;
    behind = behind == STAGES - 1 ? 0 : behind + 1;
#ifdef SLICE
    SLICE(base);
#else
#pragma unroll
    for (int k = 0; k < CHUNKS; k += 2) {
      uint fa[WORK_M / 16][4], fb[WORK_N / 16][4];
#pragma unroll
      for (int i = 0; i < WORK_M / 16; ++i) FRAGMENTS(fa[i], base + PLACE(ly + i * 16 + lane % 16, k + lane / 16));
#pragma unroll
      for (int j = 0; j < WORK_N / 16; ++j)
        FRAGMENTS(fb[j], base + A_BYTES + PLACE(lx + j * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2));
#ifdef FLOATS
      MULTIPLY_FLOATS(acc, few, fa, fb, k);
#else
#pragma unroll
      for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
        for (int j = 0; j < WORK_N / 8; ++j) MULTIPLY(acc[i][j], fa[i], fb[j / 2] + j % 2 * 2);
#endif
    }
#endif
  }
#ifdef KEPT
  uint4 kept[WORK_M / 16][WORK_N / 16];
  KEEP(0);
#endif
#ifdef KEPT_BYTES
  KEEP_BYTES(0);
#endif
  WAIT_FOR(0);
  barrier(CLK_LOCAL_MEM_FENCE);
#if SPLITS > 1 || STREAMS > 0
  __global SUM4* own = (__global SUM4*)part + item;
#if STREAMS > 0
  // The groups from `leader` on share the tile; all but the leader begin with it.
  const int leader = GROUP_OF(number * STEPS), parts = GROUP_OF(number * STEPS + STEPS - 1) - leader + 1;
#define PART_OF(sharer) (((sharer) * 2 + (BEGIN_OF(sharer) < number * STEPS)) * (CELLS * ITEMS))
  if (parts > 1) {
  const int place = PART_OF(group);
#else
  const int parts = SPLITS, place = (split * TILES + number) * (CELLS * ITEMS);
#endif
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j)
      own[place + (i * (WORK_N / 8) + j) * ITEMS] = (SUM4)(acc[i][j][0], acc[i][j][1], acc[i][j][2], acc[i][j][3]);
  FENCE;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) *(__local int*)tile = counted(counters + counter + number, parts);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int before = *(__local int*)tile;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (before < parts - 1) LEAVE;
  FENCE;
#if STREAMS > 0
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) acc[i][j][r] = 0;
#pragma unroll 1
  for (int s = leader; s < leader + parts; ++s) {
    __global const SUM4* from = own + PART_OF(s);
#pragma unroll
    for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WORK_N / 8; ++j) {
        const SUM4 sum = from[(i * (WORK_N / 8) + j) * ITEMS];
        acc[i][j][0] += sum.x;
        acc[i][j][1] += sum.y;
        acc[i][j][2] += sum.z;
        acc[i][j][3] += sum.w;
      }
  }
  }
#else
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j) {
      SUM4 sum = (SUM4)(0);
#pragma unroll
      for (int s = 0; s < SPLITS; ++s) sum += own[((s * TILES + number) * CELLS + i * (WORK_N / 8) + j) * ITEMS];
      acc[i][j][0] = sum.x;
      acc[i][j][1] = sum.y;
      acc[i][j][2] = sum.z;
      acc[i][j][3] = sum.w;
    }
#endif
#endif

#include "byte_results.cl"
#ifndef DIRECT_1
  // 16 rows at a time go through local memory; then an item has eight neighbours along n.
  __local SUM* sums = (__local SUM*)tile + sub_group * (16 * PITCH);
#pragma unroll
  for (int i = 0; i < WORK_M / 16; ++i) {
#ifdef KEPT
    if (i + 1 < WORK_M / 16) KEEP(i + 1);
#endif
#pragma unroll
    for (int j = 0; j < WORK_N / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; r += 2)
        *(__local SUM2*)(sums + (lane / 4 + r / 2 * 8) * PITCH + j * 8 + lane % 4 * 2) = (SUM2)(acc[i][j][r], acc[i][j][r + 1]);
    SUB_GROUP_BARRIER;
#pragma unroll
    for (int t = 0; t < WORK_N / 16; ++t) {
      const int e = lane + t * SUB_GROUP, y = e / (WORK_N / 8), x = e % (WORK_N / 8) * 8;
      const int m = m0 + ly + i * 16 + y, n = n0 + lx + x, o = (z * M + m) * N + n;
      if (m >= M || n >= N) continue;
      __local const SUM4* from = (__local const SUM4*)(sums + y * PITCH + x);
#ifdef FORMAT
      if (N % 8 == 0) {
        // Element by element: Oclgrind 21.10 crashes at vectors that are joined of halves.
        const int4 low = from[0], high = from[1];
        STORE_SUMS(o, (int8)(low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w) + START_V(n), n);
      } else {
        for (int c = 0; c < 8 && n + c < N; ++c) STORE_SUM(o + c, ((__local const int*)from)[c] + START(n + c), z, m, n + c);
      }
#elif N % 8 == 0
      float8 v = (float8)(from[0], from[1]);
#ifdef FLOATS
      if (any(NO_NUMBER(as_int8(v)))) v = float_sums(a, b, v, m, n PASSED);
#endif
#ifdef BIAS_T
      v += BIAS_V(bia + n);
#endif
#ifdef KEPT
      v = POST_KEPT(v, o, KEPT_FLOATS(kept[i][t]));
#else
      v = POST_V(v, o);
#endif
      STORE_V(v, dst + o);
#else
      float v[8] __attribute__((aligned(16)));
      *(float4*)v = from[0];
      *(float4*)(v + 4) = from[1];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (n + c >= N) continue;
#ifdef FLOATS
        if (NO_NUMBER(as_int(v[c]))) v[c] = float_sum(a, b, m, n + c PASSED);
#endif
#ifdef BIAS_T
        v[c] += BIAS_1(bia, n + c);
#endif
        STORE_1(POST(v[c], o + c), dst, o + c);
      }
#endif
    }
    SUB_GROUP_BARRIER;
  }
#endif
#ifdef NORMALIZE
  FENCE;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) *(__local int*)tile = counted(arrivals + arrival + m0 / TILE_M, TILES_N);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (*(__local int*)tile < TILES_N - 1) LEAVE;
  FENCE;
  for (int y = sub_group; y < TILE_M; y += SUB_GROUPS * ROWS) {
    float8 x[ROWS][TURNS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int t = 0; t < TURNS; ++t) {
        const int m = min(m0 + y + r * SUB_GROUPS, M - 1), n = (t * SUB_GROUP + lane) * 8;
        x[r][t] = (float8)(0);
        if (n < N) x[r][t] = LOAD_V_T(dst + m * N + n);
      }
    STANDARDIZE(x, ROWS);
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      const int n = (t * SUB_GROUP + lane) * 8;
      if (n >= N) continue;
      const float8 by = LOAD_V_P_T(scale + n);
#ifdef HAS_SHIFT
      const float8 plus = LOAD_V_P_T(shift + n);
#else
      const float8 plus = (float8)(0);
#endif
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int from = y + r * SUB_GROUPS, m = m0 + from;
        const float8 v = x[r][t] * by + plus;
        if (from < TILE_M && m < M) STORE_V_NORM(v, norm + m * N + n);
      }
    }
  }
#endif
#if STREAMS > 0
  }
#endif
}
