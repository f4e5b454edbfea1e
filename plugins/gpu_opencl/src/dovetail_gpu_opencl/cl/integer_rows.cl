// Sums of products of 8-bit integers for CPUs, exact: dst[z][p][n] = result of bia[n] + sum over taps and c of (src - X_ZERO) *
// wei.
// Convolutions in one and two dimensions, with X_ZERO outside the input; a product of matrices is one of 1 x 1 in an image
// of one row, whose pixels are the rows of the first factor and whose channels are K.
//
// integer_rows: a work item computes ROWS pixels (p counts an image row by row) and COLS output channels of one group, in vectors
// along the channels. What the pixels read is brought into private memory as short, CHUNK elements at once, less the zero point;
// pairs of these multiply pairs of weights, and the sums of both are added in int, which wraps. With FOURS it is brought as
// uchar, with the zero point in it (128 more for char); fours of these multiply fours of weights, and zero points times the sums
// of weights, which follow each block of these, are taken off. FOURS is 8 or 16: with 16, for CPUs with registers
// of so many ints, two blocks of channels are computed at once. Of short lines of taps several are brought at once. With TILES,
// for CPUs with registers of tiles, ROWS is 32, and tiles of weights multiply tiles of pixels, from where these are if they are
// equally far apart: see integer_tiles.cl. Weights of 9 bits are then the sums of PARTS chars. No local memory.
// NDRange: (ceil(OH * OW / ROWS), GROUPS * ceil(M / GROUPS / COLS / SPAN), images), local size 1.
//
// integer_depthwise: the same where each channel is a separate group: a work item computes one pixel for all channels, in vectors
// along them. NDRange: (OH * OW, images), local size 1. Arguments as for integer_rows; wei [KH][KW][M].
//
// channels_last: src [N][C][P] as dst [N][P][C]. NDRange: (ceil(P / 16), N), local size 1.
//
// pack: b [K][N] less its zero points as wei. NDRange: (ceil(N / COLS), matrices), local size 1.
//
// Layout: src [images][IH][IW][GROUPS * C], channels innermost; dst has O_P elements from pixel to pixel and O_N from channel to
// channel, M * OH * OW from image to image. wei of W (char or short) with the zero points subtracted, packed as
// [matrices][GROUPS][ceil(M / GROUPS / COLS)][KH][KW / TAPS][ceil(TAPS * C / STEP)][COLS][STEP], padded with zeros; STEP is 2,
// with FOURS 4, and COLS ints follow the PARTS of each block, 1024 bytes all. TAPS * C elements are contiguous in src. A_BATCH(z) is the first
// element of an image, WEI_AT(z) the matrix of its weights, B_BATCH(z) the first element of a matrix b. bia [M] of int.
// X_ZERO(z, m) is the zero point of pixel m, read from x_zero, and B_ZERO(z, n) that of a column, read from b_zero; both may be
// NULL. STORE_SUM(o, s, z, m, n) makes element o of dst of the sum s for pixel m and channel n; STORE_SUMS(o, sums, n), which
// need not be, does so for VEC channels from n on, where O_N is 1; RESULTS(o, sums, n) are these as numbers of 8 bits, of which one
// store takes two vectors. RESULT_ARGS is what both read (see kernels/_integer.py).
//
// Sizes are arguments, so that all sizes share a program: drivers for CPUs take long to build one.
//
// SPAN is how many blocks of COLS a work item computes at most, up to MOST. Tunables: ROWS, MOST. VEC is 8, COLS = 16. A work
// item of up to FEW pixels computes one after the other, so that products of single rows need no other program.
#ifndef X
#define X uchar
#define W char
#define B char
#define T int
#define X_ZERO(z, m) 0
#define B_ZERO(z, n) 0
#define RESULT_ARGS
#define STORE_SUM(o, s, z, m, n) (dst[o] = (s))
#endif
#ifndef A_BATCH
#define A_BATCH(z) ((z) * (IH * IW * GROUPS * C))
#endif
#ifndef WEI_AT
#define WEI_AT(z) 0
#define B_BATCH(z) 0
#endif
#ifndef ROWS
#define ROWS 6
#define MOST 16
#endif
#define FEW 2
#ifndef PARTS
#define PARTS 1
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#define POST_V(s, o) (s)
#endif
#ifdef HAS_BIAS
#define BIAS(n) bia[n]
#define BIASES(n) (((__global const PACKED_INT*)(bia + (n)))->v)
#else
#define BIAS(n) 0
#define BIASES(n) 0
#endif
#ifdef TILES
#define IS_TILED 1
#define EACH_ROW for (int r = 0; r < rows; ++r)
#else
#define IS_TILED 0
#define EACH_ROW _Pragma("unroll") for (int r = 0; r < ROWS; ++r)
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define VEC 8
#define COLS 16
#ifdef FOURS
#define STEP 4
#define CHUNK 512
#define BEHIND (4 * COLS)
#define V uchar
#define WV int8
#else
#define STEP 2
#define CHUNK 256
#define BEHIND 0
#define V short
#define WV short16
#endif
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  CAT(X, 16) v;
} PACKED_X;
typedef struct __attribute__((packed)) {
  CAT(W, 16) v;
} PACKED_W;
typedef struct __attribute__((packed)) {
  CAT(X, 8) v;
} PACKED_X8;
typedef struct __attribute__((packed)) {
  CAT(W, 8) v;
} PACKED_W8;
typedef struct __attribute__((packed)) {
  CAT(V, 16) v;
} PACKED_V;
typedef struct __attribute__((packed)) {
  int8 v;
} PACKED_INT;
typedef struct __attribute__((packed)) {
  int16 v;
} PACKED_INT16;
typedef struct __attribute__((packed)) {
  CAT(T, 8) v;
} PACKED_T;
#ifdef RESULTS
typedef struct __attribute__((packed)) {
  CAT(T, 16) v;
} PACKED_T16;
#endif

#ifdef FOURS
// Sums of the products of four neighbours, of uchar and of char, added to others, for 8 or 16 sums.
#define PRODUCT(n, a, b, at) (CAT(as_int, n)(CAT(as_uint, n)(a) << (24 - at) >> 24) * ((b) << (24 - at) >> 24))
#if defined(__AVX2__) && !defined(PLAIN_FOURS)
#define FOURS_ADDED(n, sums, a, b) __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b))
#else
#define FOURS_ADDED(n, sums, a, b) \
  sums += PRODUCT(n, a, b, 0) + PRODUCT(n, a, b, 8) + PRODUCT(n, a, b, 16) + PRODUCT(n, a, b, 24)
#endif
static int8 multiplied(int8 sums, const int8 a, const int8 b) {
  FOURS_ADDED(8, sums, a, b);
  return sums;
}
#if FOURS == 16 && (defined(__AVX512F__) || !defined(__AVX2__))
#define WIDE
static int16 multiplied_16(int16 sums, const int16 a, const int16 b) {
  FOURS_ADDED(16, sums, a, b);
  return sums;
}
#endif
#define MULTIPLIED(sums, x, k, w) multiplied(sums, (int8)(((const int*)(x))[k]), w)
#define WEIGHTS(w, i) (((__global const PACKED_INT*)(w))[i].v)
#ifdef TILES
#if defined(PLAIN_FOURS) || !defined(__AVX2__)
#define PLAIN_TILES
#endif
#include "integer_tiles.cl"
#define SHIFT 0
#else
#define SHIFT ((X)-1 < 0 ? 128 : 0)
#endif
#define BROUGHT(s, zero) (as_uchar(s) ^ (uchar)SHIFT)
#define BROUGHT_16(s, zero) (as_uchar16(s) ^ (uchar16)(SHIFT))
#define OUTSIDE(zero) ((uchar)((zero) + SHIFT))
#define OUTSIDE_STEP(zero) (0x01010101 * OUTSIDE(zero))
#else
// Sums of the products of neighbours. Compilers do not find the instruction for it, which takes two of these at once in the time
// of one multiplication of int.
#if defined(__AVX2__) && defined(__has_builtin) && !defined(PLAIN_PAIRS)
#if __has_builtin(__builtin_ia32_pmaddwd256)
#define PAIRS(a, b) __builtin_astype(__builtin_ia32_pmaddwd256(a, b), int8)
#endif
#endif
#ifndef PAIRS
#define FIRST(a) ((as_int8(a) << 16) >> 16)
#define SECOND(a) (as_int8(a) >> 16)
#define PAIRS(a, b) (FIRST(a) * FIRST(b) + SECOND(a) * SECOND(b))
#endif
#define MULTIPLIED(sums, x, k, w) ((sums) + PAIRS(as_short16((int8)(((const int*)(x))[k])), w))
#define WEIGHTS(w, i) convert_short16(((__global const PACKED_W*)(w))[i].v)
#define BROUGHT(s, zero) ((short)((s) - (zero)))
#define BROUGHT_16(s, zero) (convert_short16(s) - (zero))
#define OUTSIDE(zero) 0
#define OUTSIDE_STEP(zero) 0
#endif

// x[0 .. depth - 1] = s from the first to the last, the zero point round them, and up to a multiple of STEP behind.
static void fill(V* x, __global const X* s, const int first, const int last, const int depth, const short zero) {
  int k = 0;
  for (; k < first; ++k) x[k] = OUTSIDE(zero);
  for (; k + 16 <= last; k += 16) ((PACKED_V*)(x + k))->v = BROUGHT_16(((__global const PACKED_X*)(s + k))->v, zero);
  if (k < last && last - first > 16) {
    k = last - 16;
    ((PACKED_V*)(x + k))->v = BROUGHT_16(((__global const PACKED_X*)(s + k))->v, zero);
    k = last;
  }
  for (; k < last; ++k) x[k] = BROUGHT(s[k], zero);
  for (; k < (depth + STEP - 1) / STEP * STEP; ++k) x[k] = OUTSIDE(zero);
}

// The same where all are there, for a depth of 16 or more.
static void copied(V* x, __global const X* s, const int depth, const short zero) {
  if (depth % STEP) *(int*)(x + depth / STEP * STEP) = OUTSIDE_STEP(zero);
  for (int k = 0; k + 16 <= depth; k += 16) ((PACKED_V*)(x + k))->v = BROUGHT_16(((__global const PACKED_X*)(s + k))->v, zero);
  if (depth % 16) ((PACKED_V*)(x + depth - 16))->v = BROUGHT_16(((__global const PACKED_X*)(s + depth - 16))->v, zero);
}

__kernel void integer_rows(__global const X* restrict src, __global const W* restrict wei, __global const X* restrict x_zero,
                           __global const int* restrict bia, __global T* dst, const int GROUPS, const int C, const int M,
                           const int IH, const int IW, const int OH, const int OW, const int KH, const int KW,
                           const int STRIDE_Y, const int STRIDE_X, const int DILATION_Y, const int DILATION_X,
                           const int PAD_Y, const int PAD_X, const int TAPS, const int O_P, const int O_N,
                           const int SPAN RESULT_ARGS POST_ARGS) {
  const int MG = M / GROUPS, BLOCKS = (MG + COLS - 1) / COLS, SPANS = (BLOCKS + SPAN - 1) / SPAN;
  const int pixel = get_global_id(0) * ROWS, rows = min(ROWS, OH * OW - pixel);
  const int span = get_global_id(1);
  const int z = get_global_id(2);
  const int group = span / SPANS, block = span % SPANS * SPAN, count = min(SPAN, BLOCKS - block);
  const int length = TAPS * C, line = (length + STEP - 1) / STEP * (STEP * COLS);
  const int part = KH * (KW / TAPS) * line, depths = PARTS * part + BEHIND;
  __global const X* image = src + A_BATCH(z);
  __global const W* w = wei + ((WEI_AT(z) * GROUPS + group) * BLOCKS + block) * depths;
  int y0[ROWS], x0[ROWS];
  short zero[ROWS];
  int py = pixel / OW, px = pixel % OW;
  EACH_ROW {
    y0[r] = py * STRIDE_Y - PAD_Y;
    x0[r] = px * STRIDE_X - PAD_X;
    zero[r] = X_ZERO(z, py * OW + px);
    const int more = pixel + r + 1 < OH * OW;
    px += more;
    py += px == OW;
    px = px == OW ? 0 : px;
  }
  int8 sums[MOST][ROWS][2] __attribute__((aligned(64)));
  for (int i = 0; i < count; ++i) EACH_ROW sums[i][r][0] = sums[i][r][1] = (int8)(0);
#ifdef FOURS
  __global const W* behind = w + depths - BEHIND;
#endif
#ifdef TILES
  shape(rows);
#ifndef PLAIN_TILES
  // Pixels of products, and of 1 x 1 windows, are read where they are.
  if (KH * KW == 1 && length % DEPTH == 0 && PAD_Y == 0 && PAD_X == 0 && (OW - 1) * STRIDE_X < IW && (OH - 1) * STRIDE_Y < IH &&
      (OH == 1 || (STRIDE_Y == 1 && STRIDE_X == 1 && OW == IW))) {
    __global const X* a = image + ((y0[0] * IW + x0[0]) * GROUPS + group) * C;
    for (int i = 0; i < count; i += 2)
      for (int j = 0; j < PARTS; ++j)
        multiply((int*)sums[i], i + 1 < count, ADDRESS(a), GROUPS * C * STRIDE_X, w + i * depths + j * part, depths,
                 length / DEPTH, rows);
  } else
#endif
  {
#endif
  V x[ROWS][CHUNK] __attribute__((aligned(64)));
  const int across = KW / TAPS, lines = KH * across, joined = clamp(CHUNK / max(line / COLS, 1), 1, lines);
  for (int l = 0; l < lines; l += joined, w += joined * line)
    for (int k0 = 0; k0 < length; k0 += CHUNK) {
      const int depth = min(CHUNK, length - k0), more = min(joined, lines - l) - 1;
      const int steps = (more * (line / COLS) + depth + STEP - 1) / STEP;
      for (int j = 0; j <= more; ++j)
        for (int r = 0; r < (rows <= FEW || IS_TILED ? rows : ROWS); ++r) {
          const int iy = y0[r] + (l + j) / across * DILATION_Y, ix = x0[r] + (l + j) % across * TAPS * DILATION_X;
          if (depth >= 16 && ix >= 0 && ix + TAPS <= IW && iy >= 0 && iy < IH) {
            copied(x[r] + j * (line / COLS), image + ((iy * IW + ix) * GROUPS + group) * C + k0, depth, zero[r]);
            continue;
          }
          const int taps = iy >= 0 && iy < IH ? TAPS : 0;
          const int first = clamp(-ix, 0, taps) * C - k0, last = clamp(IW - ix, 0, taps) * C - k0;
          fill(x[r] + j * (line / COLS), image + ((iy * IW + ix) * GROUPS + group) * C + k0, clamp(first, 0, depth),
               clamp(last, 0, depth), depth, zero[r]);
        }
      int i = 0;
#ifdef TILES
      // Zeros behind, because the weights that they multiply are others: sums, or the next block.
      const int tiled = (steps * STEP + DEPTH - 1) / DEPTH;
      for (int r = 0; r < rows; ++r)
        for (int k = steps * STEP; k < tiled * DEPTH; k += STEP) *(int*)(x[r] + k) = 0;
      for (; i < count; i += 2)
        for (int j = 0; j < PARTS; ++j)
          multiply((int*)sums[i], i + 1 < count, ADDRESS((const uchar*)x), CHUNK, w + i * depths + j * part + k0 * COLS, depths,
                   tiled, rows);
#elif defined(WIDE)
      for (; rows > FEW && i + 1 < count; i += 2) {
        __global const PACKED_INT16* w0 = (__global const PACKED_INT16*)(w + i * depths + k0 * COLS);
        __global const PACKED_INT16* w1 = (__global const PACKED_INT16*)(w + (i + 1) * depths + k0 * COLS);
        int16 s0[ROWS], s1[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          s0[r] = *(const int16*)sums[i][r];
          s1[r] = *(const int16*)sums[i + 1][r];
        }
        for (int k = 0; k < steps; ++k) {
          const int16 v0 = w0[k].v, v1 = w1[k].v;
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const int16 four = (int16)(((const int*)(x[r]))[k]);
            s0[r] = multiplied_16(s0[r], four, v0);
            s1[r] = multiplied_16(s1[r], four, v1);
          }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          *(int16*)sums[i][r] = s0[r];
          *(int16*)sums[i + 1][r] = s1[r];
        }
      }
#endif
#ifndef TILES
      for (; i < count; ++i) {
        __global const W* wk = w + i * depths + k0 * COLS;
        if (rows <= FEW) {
          for (int r = 0; r < rows; ++r) {
            int8 low = sums[i][r][0], high = sums[i][r][1];
            for (int k = 0; k < steps; ++k) {
              low = MULTIPLIED(low, x[r], k, WEIGHTS(wk + k * (STEP * COLS), 0));
              high = MULTIPLIED(high, x[r], k, WEIGHTS(wk + k * (STEP * COLS), 1));
            }
            sums[i][r][0] = low;
            sums[i][r][1] = high;
          }
          continue;
        }
        int8 low[ROWS], high[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          low[r] = sums[i][r][0];
          high[r] = sums[i][r][1];
        }
        for (int k = 0; k < steps; ++k, wk += STEP * COLS) {
          const WV w0 = WEIGHTS(wk, 0), w1 = WEIGHTS(wk, 1);
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            low[r] = MULTIPLIED(low[r], x[r], k, w0);
            high[r] = MULTIPLIED(high[r], x[r], k, w1);
          }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          sums[i][r][0] = low[r];
          sums[i][r][1] = high[r];
        }
      }
#endif
    }
#ifdef TILES
  }
  release();
#endif
  for (int i = 0; i < count; ++i) {
    const int n0 = (block + i) * COLS, cols = min(COLS, MG - n0), first = group * MG + n0;
#ifdef FOURS
    const int8 low = WEIGHTS(behind + i * depths, 0), high = WEIGHTS(behind + i * depths, 1);
#define LESS(r, s, of_weights) ((s) - (of_weights) * (X_ZERO(z, pixel + (r)) + SHIFT))
#else
    const int8 low = 0, high = 0;
#define LESS(r, s, of_weights) (s)
#endif
#ifdef STORE_SUMS
    if (O_N == 1 && cols == COLS) {
      for (int r = 0; r < rows; ++r) {
        const int o = z * (M * OH * OW) + (pixel + r) * O_P + first;
        const int8 s0 = sums[i][r][0] + LESS(r, BIASES(first), low), s1 = sums[i][r][1] + LESS(r, BIASES(first + VEC), high);
#ifdef RESULTS
        const CAT(T, 16) both = (CAT(T, 16))(RESULTS(o, s0, first), RESULTS(o + VEC, s1, first + VEC));
        ((__global PACKED_T16*)(dst + o))->v = both;
#else
        STORE_SUMS(o, s0, first);
        STORE_SUMS(o + VEC, s1, first + VEC);
#endif
      }
      continue;
    }
#endif
    int8 all[2] __attribute__((aligned(64)));
    all[0] = low;
    all[1] = high;
    for (int c = 0; c < cols; ++c) {
      const int n = first + c;
      for (int r = 0; r < rows; ++r) {
        const int m = pixel + r, o = z * (M * OH * OW) + m * O_P + n * O_N;
        STORE_SUM(o, ((const int*)sums[i][r])[c] + LESS(r, BIAS(n), ((const int*)all)[c]), z, m, n);
      }
    }
  }
}

__kernel void integer_depthwise(__global const X* restrict src, __global const W* restrict wei, __global const X* restrict x_zero,
                                __global const int* restrict bia, __global T* dst, const int GROUPS, const int C, const int M,
                                const int IH, const int IW, const int OH, const int OW, const int KH, const int KW,
                                const int STRIDE_Y, const int STRIDE_X, const int DILATION_Y, const int DILATION_X,
                                const int PAD_Y, const int PAD_X, const int TAPS, const int O_P, const int O_N,
                                const int SPAN RESULT_ARGS POST_ARGS) {
  const int p = get_global_id(0), z = get_global_id(1), zero = X_ZERO(z, p);
  const int y0 = p / OW * STRIDE_Y - PAD_Y, x0 = p % OW * STRIDE_X - PAD_X;
  const int at = z * (M * OH * OW) + p * O_P;
  __global const X* image = src + A_BATCH(z);
  int n = 0;
  for (; n + VEC <= M; n += VEC) {
    int8 sum = (int8)(0);
    for (int ky = 0; ky < KH; ++ky)
      for (int kx = 0; kx < KW; ++kx) {
        const int y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
        if (y < 0 || y >= IH || x < 0 || x >= IW) continue;
        const int8 v = convert_int8(((__global const PACKED_X8*)(image + (y * IW + x) * M + n))->v) - zero;
        sum += v * convert_int8(((__global const PACKED_W8*)(wei + (ky * KW + kx) * M + n))->v);
      }
#ifdef STORE_SUMS
    if (O_N == 1) {
      STORE_SUMS(at + n, sum + BIASES(n), n);
      continue;
    }
#endif
    for (int i = 0; i < VEC; ++i) STORE_SUM(at + (n + i) * O_N, ((const int*)&sum)[i] + BIAS(n + i), z, p, n + i);
  }
  for (; n < M; ++n) {
    int sum = BIAS(n);
    for (int ky = 0; ky < KH; ++ky)
      for (int kx = 0; kx < KW; ++kx) {
        const int y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
        if (y >= 0 && y < IH && x >= 0 && x < IW) sum += (image[(y * IW + x) * M + n] - zero) * wei[(ky * KW + kx) * M + n];
      }
    STORE_SUM(at + n * O_N, sum, z, p, n);
  }
}

__kernel void channels_last(__global const X* restrict src, __global X* restrict dst, const int C, const int P) {
  const int p0 = get_global_id(0) * 16, image = get_global_id(1) * (C * P);
  const int last = min(p0 + 16, P);
  for (int c0 = 0; c0 < C; c0 += 16) {
    const int end = min(c0 + 16, C);
    for (int p = p0; p < last; ++p)
      for (int c = c0; c < end; ++c) dst[image + p * C + c] = src[image + c * P + p];
  }
}

__kernel void pack(__global const B* restrict b, __global const B* restrict b_zero, __global short* restrict wei, const int N,
                   const int K) {
  const int n0 = get_global_id(0) * COLS, z = get_global_id(1), pairs = (K + 1) / 2;
  __global short* w = wei + (z * (int)get_global_size(0) + (int)get_global_id(0)) * (pairs * (2 * COLS));
  short zero[COLS];
  for (int c = 0; c < COLS; ++c) zero[c] = n0 + c < N ? B_ZERO(z, n0 + c) : 0;
  for (int k = 0; k < 2 * pairs; ++k)
    for (int c = 0; c < COLS; ++c)
      w[k / 2 * (2 * COLS) + 2 * c + k % 2] = k < K && n0 + c < N ? (short)(b[B_BATCH(z) + k * N + n0 + c] - zero[c]) : (short)0;
}
