// A pointwise convolution and the depthwise convolution of its result, for GPUs: wid[n][h] = INNER(wide_bia[h] + sum over c of
// wide[c][h] * src[n][c]), dst[n][h] = POST(deep_bia[h] + wid[n][h] convolved with deep[h]).
//
// A work group computes a tile of TILE_Y x TILE_X elements of SLICE channels of dst. It makes SLICE channels of wid in the window
// that the tile sees, in float: STEP channels of src and their weights at a time come to local memory, and an item adds up four
// channels by four pixels, BLOCKS times. Then it convolves what was made. A window lies within its image: WINDOW_Y <= IH,
// WINDOW_X <= IW.
// NDRange: (tiles of all images * ITEMS, H / SLICE rounded up), local size (ITEMS, 1).
//
// With LAST a second pointwise convolution follows, to LAST channels: dst[n][l] = POST(narrow_bia[l] + sum over h of narrow[h][l]
// * MIDDLE(the result above)). A group multiplies the SLICE channels that it has, and puts its share of the sums into part. The
// slices of a tile count in counters, which are zeros before and after, who is the last: that group adds up the shares. FENCE as
// in product.cl.
// With one slice there are neither.
//
// With SRC_C the first convolution has windows: C is SRC_C * SRC_KH * SRC_KW, the rows of wide in this order, and wid[n][h] is IH
// x IW.
// In place of src[n] stand the elements of src, SRC_C channels of SRC_H x SRC_W, that a window sees; outside it sees zeros.
//
// Layout: src [N][C][IH][IW] dense, or with SRC_INNERMOST [N][IH][IW][C], likewise with SRC_C, SRC_H and SRC_W; dst
// [N][H][OH][OW], or with INNERMOST [N][OH][OW][H]. With LAST dst has so
// many channels, and part is [tiles of all images][HS / SLICE][SPOTS][LASTS], where HS is H rounded up to SLICE, and LASTS is
// LAST rounded up to 4. The weights are in one buffer, since each argument costs the host time for each launch, in float: wide
// [C][HS], wide_bia [HS], deep [KH][KW][HS], deep_bia [HS], and with LAST narrow [HS][LASTS], narrow_bia [LASTS].
//
// Tunables: TILE_Y, TILE_X, ITEMS, and SLICE, which like STEP is a multiple of 4. Local memory: as Windows.floats has it.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define INNER(s) (s)
#define MIDDLE(s) (s)
#define C 8
#define H 16
#define HS 16
#define KH 3
#define KW 3
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Y 1
#define DILATION_X 1
#define PAD_Y 1
#define PAD_X 1
#define SIZES , const int IH, const int IW, const int OH, const int OW
#define TILE_Y 4
#define TILE_X 4
#define WINDOW_Y 6
#define WINDOW_X 6
#define SLICE 16
#define STEP 8
#define ITEMS 64
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif

#define PIXELS (WINDOW_Y * WINDOW_X)
#define WINDOW ((PIXELS + 3) / 4 * 4)
#define TILE (TILE_Y * TILE_X)
#define PARTS (SLICE / 4 * (WINDOW / 4))
#define BLOCKS ((PARTS + ITEMS - 1) / ITEMS)
// A row of floats as local memory holds it: an odd number of vectors, so that neighbouring rows begin in different banks.
#define ROW(n) ((n) / 4 % 2 ? (n) : (n) + 4)
#define AHEAD 8
#ifdef LAST
#define LASTS ((LAST + 3) / 4 * 4)
#define SPOTS ((TILE + 3) / 4 * 4)
#define SLICES (HS / SLICE)
// Elements of a tile for which an item adds up four channels: so many that an item loads least, each vector of weights for all.
#define VECTORS(each) ((LASTS / 4 * (SPOTS / (each)) + ITEMS - 1) / ITEMS * (4 + (each)))
#define EACH (VECTORS(4) < VECTORS(2) && VECTORS(4) < VECTORS(1) ? 4 : VECTORS(2) < VECTORS(1) ? 2 : 1)
#if HS > SLICE
#define SHARED
#define SHARED_ARGS , __global float4 *part, __global int *counters, const int counter
// The last group adds up the shares of TOGETHER vectors of the tile for each item, and loads CHUNK shares of each at a time.
#define VECTORS_OF_TILE (LASTS / 4 * TILE)
#define FOLDS ((VECTORS_OF_TILE + ITEMS - 1) / ITEMS)
#define TOGETHER (FOLDS < 4 ? FOLDS : 4)
#define CHUNKS ((SLICES * TOGETHER + 19) / 20)
#define CHUNK ((SLICES + CHUNKS - 1) / CHUNKS)
#define VECTOR(f) min(at + (f) * ITEMS, VECTORS_OF_TILE - 1)
#else
#define SHARED_ARGS
#endif
#define CHANNELS LAST
#ifndef FENCE
#define FENCE asm volatile("membar.gl;" ::: "memory")
#endif
#else
#define LASTS 0
#define SPOTS TILE
#define SHARED_ARGS
#define CHANNELS H
#endif
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define UNROLL _Pragma("unroll")

// TO = FROM, expressions of i, for 0 <= i < COUNT: BEGIN_FILL has the first N loads of each item under way, END_FILL puts them
// where they belong, and does the rest with N at a time. What is between them does not wait.
#define BEGIN_FILL(HELD, FROM, TYPE, COUNT, N)                           \
  TYPE HELD[N];                                                           \
  UNROLL for (int a = 0; a < (N); ++a) {                                  \
    const int i = min(item + a * ITEMS, (COUNT) - 1);                     \
    HELD[a] = FROM;                                                       \
  }
#define END_FILL(HELD, TO, FROM, TYPE, COUNT, N)                         \
  UNROLL for (int a = 0; a < (N); ++a) {                                  \
    const int i = item + a * ITEMS;                                       \
    if (i < (COUNT)) TO = HELD[a];                                        \
  }                                                                       \
  if ((N) * ITEMS < (COUNT))                                              \
    for (int at = item + (N) * ITEMS; at < (COUNT); at += (N) * ITEMS) {  \
      UNROLL for (int a = 0; a < (N); ++a) {                              \
        const int i = min(at + a * ITEMS, (COUNT) - 1);                   \
        HELD[a] = FROM;                                                   \
      }                                                                   \
      UNROLL for (int a = 0; a < (N); ++a) {                              \
        const int i = at + a * ITEMS;                                     \
        if (i < (COUNT)) TO = HELD[a];                                    \
      }                                                                   \
    }
// As many loads as an item has of so many, at most MOST.
#define LOADS(COUNT, MOST) (((COUNT) + ITEMS - 1) / ITEMS < (MOST) ? ((COUNT) + ITEMS - 1) / ITEMS : (MOST))

// Of the i-th value of a window of STEP channels, in the order of src: its channel, its pixel, and its place in src.
#ifdef SRC_INNERMOST
#define CHANNEL(i) ((i) % STEP)
#define PIXEL(i) ((i) / STEP)
#define AT(n, c, y, x, channels, height, width) ((((n) * (height) + (y)) * (width) + (x)) * (channels) + (c))
#else
#define CHANNEL(i) ((i) / WINDOW)
#define PIXEL(i) ((i) % WINDOW)
#define AT(n, c, y, x, channels, height, width) ((((n) * (channels) + (c)) * (height) + (y)) * (width) + (x))
#endif
#define SEEN(i) min(PIXEL(i), PIXELS - 1)
// Of the last STEP channels some may be missing: these count as zero.
#define EXISTS(c) (C % STEP == 0 || (c) < C)
// The place of a result.
#ifdef INNERMOST
#define PLACE(channel, y, x) (((n * OH + (y)) * OW + (x)) * CHANNELS + (channel))
#else
#define PLACE(channel, y, x) (((n * CHANNELS + (channel)) * OH + (y)) * OW + (x))
#endif
// Stores COUNT times four channels with their post-ops: those of sums[i] begin at channel FIRST of element SPOT of the tile, both
// expressions of i, if it EXISTS. What post-ops read is loaded for all before anything is stored: the compiler has to assume that
// dst overlaps it, and would wait for each load otherwise. What does not exist reads at 0.
#define STORE_ALL(COUNT, EXISTS, FIRST, SPOT)                                                      \
  {                                                                                                \
    int places[COUNT][4];                                                                          \
    float results[COUNT][4];                                                                       \
    UNROLL for (int i = 0; i < (COUNT); ++i) {                                                     \
      const int oy = oy0 + (SPOT) / TILE_X, ox = ox0 + (SPOT) % TILE_X;                            \
      const bool inside = (EXISTS) && (SPOT) < TILE && oy < OH && ox < OW;                         \
      const float whole[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};                         \
      UNROLL for (int q = 0; q < 4; ++q) {                                                         \
        const int channel = (FIRST) + q;                                                           \
        const bool held = inside && (CHANNELS % 4 == 0 || channel < CHANNELS);                     \
        places[i][q] = held ? PLACE(channel, oy, ox) : -1;                                         \
        results[i][q] = POST(whole[q], max(places[i][q], 0));                                      \
      }                                                                                            \
    }                                                                                              \
    UNROLL for (int i = 0; i < (COUNT); ++i)                                                       \
      UNROLL for (int q = 0; q < 4; ++q) if (places[i][q] >= 0) STORE_T(dst, places[i][q], results[i][q]); \
  }
// What is loaded: values of the window, and vectors of the weights of each convolution.
#define IMAGE                                                                                                                        \
  (EXISTS(c0 + CHANNEL(i)) ? ELEMENT(c0 + CHANNEL(i), y0 + SEEN(i) / WINDOW_X, x0 + SEEN(i) % WINDOW_X) : 0.0f)
#ifdef SRC_C
#define ELEMENT(c, y, x) gathered(src, n, c, y, x PASSED)
#else
#define ELEMENT(c, y, x) LOAD_T(src, AT(n, c, y, x, C, IH, IW))
#endif
#define WIDE (EXISTS(c0 + i / (SLICE / 4)) ? COLUMNS(wide, c0, i) : (float4)(0.0f))
#define DEEP COLUMNS(deep, 0, i)
#define NARROW (*(__global const float4*)(narrow + h0 * LASTS + i * 4))
#define IMAGES (STEP * WINDOW)
#define WIDES (STEP * (SLICE / 4))
#define DEEPS ((KH * KW + 1) * (SLICE / 4))
#define NARROWS (SLICE * (LASTS / 4))
// The i-th vector of SLICE columns of a matrix with HS columns.
#define COLUMNS(matrix, row, i) (*(__global const float4*)((matrix) + ((row) + (i) / (SLICE / 4)) * HS + h0 + (i) % (SLICE / 4) * 4))

#ifdef SRC_C
// Of the window of the first convolution at (y, x) the c-th element.
static float gathered(__global const T* restrict src, const int n, const int c, const int y, const int x SIZES) {
  const int channel = c / (SRC_KH * SRC_KW), k = c % (SRC_KH * SRC_KW);
  const int at_y = y * SRC_STRIDE_Y - SRC_PAD_Y + k / SRC_KW * SRC_DILATION_Y;
  const int at_x = x * SRC_STRIDE_X - SRC_PAD_X + k % SRC_KW * SRC_DILATION_X;
  if (at_y < 0 || at_y >= SRC_H || at_x < 0 || at_x >= SRC_W) return 0.0f;
  return LOAD_T(src, AT(n, channel, at_y, at_x, SRC_C, SRC_H, SRC_W));
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void pointwise_depthwise(
    __global const T* restrict src, __global const float* restrict packed, __global T* dst SHARED_ARGS SIZES POST_ARGS) {
  __global const float *wide = packed, *wide_bia = wide + C * HS, *deep = wide_bia + HS, *deep_bia = deep + KH * KW * HS;
  // Later they hold the result of the depthwise convolution, and the weights of the last one.
  __local float image[LARGER(WINDOW * ROW(STEP), LASTS > 0 ? SPOTS * ROW(SLICE) : 0)] __attribute__((aligned(16)));
  __local float4 weights[LARGER(STEP, LASTS) * (SLICE / 4)];
  __local float wid[WINDOW * ROW(SLICE)] __attribute__((aligned(16)));
  __local float4 taps[DEEPS];  // and the biases, which follow them
  const int item = get_local_id(0), h0 = get_group_id(1) * SLICE;
  const int tiles_x = (OW + TILE_X - 1) / TILE_X, tiles = (OH + TILE_Y - 1) / TILE_Y * tiles_x;
  const int tile = get_group_id(0) % tiles, n = get_group_id(0) / tiles;
  const int oy0 = tile / tiles_x * TILE_Y, ox0 = tile % tiles_x * TILE_X;
  const int y0 = clamp(oy0 * STRIDE_Y - PAD_Y, 0, IH - WINDOW_Y), x0 = clamp(ox0 * STRIDE_X - PAD_X, 0, IW - WINDOW_X);

  float4 sum[BLOCKS][4];
  UNROLL for (int b = 0; b < BLOCKS; ++b) {
    const int h = h0 + min(item + b * ITEMS, PARTS - 1) / (WINDOW / 4) * 4;
    UNROLL for (int r = 0; r < 4; ++r) sum[b][r] = *(__global const float4*)(wide_bia + h);
  }
  BEGIN_FILL(deeps, DEEP, float4, DEEPS, LOADS(DEEPS, AHEAD / 2))
  for (int c0 = 0; c0 < C; c0 += STEP) {
    if (c0 > 0) barrier(CLK_LOCAL_MEM_FENCE);
    BEGIN_FILL(images, IMAGE, float, IMAGES, LOADS(IMAGES, 3 * AHEAD))
    BEGIN_FILL(wides, WIDE, float4, WIDES, LOADS(WIDES, 3 * AHEAD / 2))
    END_FILL(images, image[PIXEL(i) * ROW(STEP) + CHANNEL(i)], IMAGE, float, IMAGES, LOADS(IMAGES, 3 * AHEAD))
    END_FILL(wides, weights[i], WIDE, float4, WIDES, LOADS(WIDES, 3 * AHEAD / 2))
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int b = 0; b < BLOCKS; ++b) {
      const int i = min(item + b * ITEMS, PARTS - 1), h = i / (WINDOW / 4), p = i % (WINDOW / 4);
#pragma unroll 2
      for (int c = 0; c < STEP; c += 4) {
        float4 w[4];
        UNROLL for (int d = 0; d < 4; ++d) w[d] = weights[(c + d) * (SLICE / 4) + h];
        UNROLL for (int r = 0; r < 4; ++r) {
          const float4 x = *(__local const float4*)(image + (p + r * (WINDOW / 4)) * ROW(STEP) + c);
          sum[b][r] = fma((float4)(x.x), w[0], sum[b][r]);
          sum[b][r] = fma((float4)(x.y), w[1], sum[b][r]);
          sum[b][r] = fma((float4)(x.z), w[2], sum[b][r]);
          sum[b][r] = fma((float4)(x.w), w[3], sum[b][r]);
        }
      }
    }
  }
  UNROLL for (int b = 0; b < BLOCKS; ++b) {
    const int i = item + b * ITEMS, h = i / (WINDOW / 4) * 4, p = i % (WINDOW / 4);
    if (i < PARTS) UNROLL for (int r = 0; r < 4; ++r)
        *(__local float4*)(wid + (p + r * (WINDOW / 4)) * ROW(SLICE) + h) = INNER(sum[b][r]);
  }
#ifdef LAST
  __global const float *narrow = deep_bia + HS, *narrow_bia = narrow + HS * LASTS;
  BEGIN_FILL(narrows, NARROW, float4, NARROWS, LOADS(NARROWS, 3 * AHEAD / 2))
#endif
  END_FILL(deeps, taps[i], DEEP, float4, DEEPS, LOADS(DEEPS, AHEAD / 2))
  barrier(CLK_LOCAL_MEM_FENCE);

#ifdef LAST
  END_FILL(narrows, weights[i], NARROW, float4, NARROWS, LOADS(NARROWS, 3 * AHEAD / 2))
#endif
  for (int i = item; i < SLICE / 4 * SPOTS; i += ITEMS) {
#if defined(INNERMOST) || defined(LAST)
    const int h = i % (SLICE / 4), p = i / (SLICE / 4);
#else
    const int h = i / TILE, p = i % TILE;
#endif
    const int oy = oy0 + p / TILE_X, ox = ox0 + p % TILE_X;
#ifndef LAST
    if (oy >= OH || ox >= OW) continue;
#endif
    float4 made = taps[KH * KW * (SLICE / 4) + h];
    UNROLL for (int ky = 0; ky < KH; ++ky)
      UNROLL for (int kx = 0; kx < KW; ++kx) {
        const int y = oy * STRIDE_Y - PAD_Y + ky * DILATION_Y, x = ox * STRIDE_X - PAD_X + kx * DILATION_X;
        const int at = clamp(y - y0, 0, WINDOW_Y - 1) * WINDOW_X + clamp(x - x0, 0, WINDOW_X - 1);
        const float4 seen = *(__local const float4*)(wid + at * ROW(SLICE) + h * 4);
        const bool inside = y >= 0 && y < IH && x >= 0 && x < IW;
        made = fma(inside ? seen : (float4)(0.0f), taps[(ky * KW + kx) * (SLICE / 4) + h], made);
      }
#ifdef LAST
    made = MIDDLE(made);
    // The chain may make anything of the zeros of channels that do not exist.
    const int4 exists = h0 + h * 4 + (int4)(0, 1, 2, 3) < (int4)(H);
    *(__local float4*)(image + p * ROW(SLICE) + h * 4) = H % SLICE == 0 ? made : select((float4)(0.0f), made, exists);
#else
    const float results[4] = {made.x, made.y, made.z, made.w};
    UNROLL for (int r = 0; r < 4; ++r) {
      const int channel = h0 + h * 4 + r, o = PLACE(channel, oy, ox);
      if (channel < H) STORE_T(dst, o, POST(results[r], o));
    }
#endif
  }

#ifdef LAST
  barrier(CLK_LOCAL_MEM_FENCE);
#ifdef SHARED
  __global float4* shares = part + get_group_id(0) * (SLICES * SPOTS * (LASTS / 4));
  __global float4* own = shares + get_group_id(1) * (SPOTS * (LASTS / 4));
#endif
  for (int i = item; i < LASTS / 4 * (SPOTS / EACH); i += ITEMS) {
    const int l = i % (LASTS / 4), p = i / (LASTS / 4);
    float4 share[EACH];
    UNROLL for (int r = 0; r < EACH; ++r) share[r] = (float4)(0.0f);
#pragma unroll 2
    for (int h = 0; h < SLICE; h += 4) {
      float4 w[4];
      UNROLL for (int d = 0; d < 4; ++d) w[d] = weights[(h + d) * (LASTS / 4) + l];
      UNROLL for (int r = 0; r < EACH; ++r) {
        const float4 x = *(__local const float4*)(image + (p + r * (SPOTS / EACH)) * ROW(SLICE) + h);
        share[r] = fma((float4)(x.x), w[0], share[r]);
        share[r] = fma((float4)(x.y), w[1], share[r]);
        share[r] = fma((float4)(x.z), w[2], share[r]);
        share[r] = fma((float4)(x.w), w[3], share[r]);
      }
    }
#ifdef SHARED
    UNROLL for (int r = 0; r < EACH; ++r) own[(p + r * (SPOTS / EACH)) * (LASTS / 4) + l] = share[r];
#else
    float4 sums[EACH];
    UNROLL for (int r = 0; r < EACH; ++r) sums[r] = share[r] + *(__global const float4*)(narrow_bia + l * 4);
    STORE_ALL(EACH, true, l * 4, p + i * (SPOTS / EACH))
#endif
  }
#ifdef SHARED
  __local int finished;
  FENCE;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) finished = atomic_inc(counters + counter + get_group_id(0));
  barrier(CLK_LOCAL_MEM_FENCE);
  if (finished < SLICES - 1) return;
  FENCE;
  if (item == 0) counters[counter + get_group_id(0)] = 0;
  for (int at = item; at < VECTORS_OF_TILE; at += TOGETHER * ITEMS) {
    float4 sums[TOGETHER];
    UNROLL for (int f = 0; f < TOGETHER; ++f) sums[f] = *(__global const float4*)(narrow_bia + VECTOR(f) % (LASTS / 4) * 4);
    for (int q0 = 0; q0 < SLICES; q0 += CHUNK) {
      float4 held[CHUNK][TOGETHER];
      UNROLL for (int d = 0; d < CHUNK; ++d)
        UNROLL for (int f = 0; f < TOGETHER; ++f)
          held[d][f] = shares[min(q0 + d, SLICES - 1) * (SPOTS * (LASTS / 4)) + VECTOR(f)];
      UNROLL for (int d = 0; d < CHUNK; ++d)
        UNROLL for (int f = 0; f < TOGETHER; ++f) sums[f] += SLICES % CHUNK == 0 || q0 + d < SLICES ? held[d][f] : (float4)(0.0f);
    }
    STORE_ALL(TOGETHER, at + i * ITEMS < VECTORS_OF_TILE, VECTOR(i) % (LASTS / 4) * 4, VECTOR(i) / (LASTS / 4))
  }
#endif
#endif
}
