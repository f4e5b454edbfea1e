// Depthwise convolution, and with MAXIMUM or MEAN pooling, of halves, or floats, with channels innermost (NHWC): eight channels
// of XS neighbouring pixels an item. Sums are f32. A mean is over elements inside the input, or with COUNT_PADS over those inside
// the input and its pads (COUNT_H, COUNT_W: the end of the padded input).
//
// NDRange: BATCH * OH * ceil(OW / XS) * (C / 8), rounded up to whole groups.
//
// BATCH, IH, IW, OW and pads may be among the arguments SIZES; the divisors OH and COLUMNS = ceil(OW / XS) are.
// Layout: wei is [KH][KW][C], src and dst are [BATCH][height][width][C]. C is a multiple of 8.
//
// Tunables: XS, the pixels of an item, which share weights and overlapping columns.
#include "halves.cl"
#ifndef C
#define C 8
#define BATCH 1
#define IH 1
#define IW 1
#define OH COLUMNS
#define OW 1
#define KH 1
#define KW 1
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Y 1
#define DILATION_X 1
#define PAD_Y 0
#define PAD_X 0
#define SIZES , const int COLUMNS, const uint COLUMNS_factor, const int COLUMNS_shift
#define XS 1
#define T half
#define LOAD_V_T(p) load_half8(p)
#define STORE_V(v, p) store_half8(v, p)
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST_V(s, o) (s)
#endif
#include "quotients.cl"
#define TAKEN ((XS - 1) * STRIDE_X + (KW - 1) * DILATION_X + 1)
#ifdef MAXIMUM
#define START -INFINITY
#else
#define START 0
#endif
#if defined(MAXIMUM) || defined(MEAN)
#define WEIGHTS
#else
#define WEIGHTS , __global const T* restrict wei
#endif
// How many of the taps of a window that starts at `at` count.
#define BEFORE_END(at, dilation, end, taps) ((at) < (end) ? min(taps, ((end) - (at) - 1) / (dilation) + 1) : 0)
#ifdef COUNT_PADS
#define COUNTED(at, dilation, size, padded, taps) BEFORE_END(at, dilation, padded, taps)
#else
#define COUNTED(at, dilation, size, padded, taps) \
  (BEFORE_END(at, dilation, size, taps) - ((at) < 0 ? (-(at) + (dilation) - 1) / (dilation) : 0))
#endif
#ifdef BIAS_T
#define BIAS_ARG , __global const BIAS_T* restrict bia
#else
#define BIAS_ARG
#endif

__kernel void windows_channels(__global const T* restrict src WEIGHTS BIAS_ARG, __global T* restrict dst SIZES POST_ARGS) {
  const int item = get_global_id(0), c = item % (C / 8) * 8, place = item / (C / 8);
  const int column = REMAINDER(place, COLUMNS), line = QUOTIENT(place, COLUMNS);
  if (line >= BATCH * OH) return;
  const int x = column * XS, y0 = REMAINDER(line, OH) * STRIDE_Y - PAD_Y, x0 = x * STRIDE_X - PAD_X;
  src += QUOTIENT(line, OH) * (IH * IW * C) + c;
  float8 acc[XS];
#pragma unroll
  for (int i = 0; i < XS; ++i) acc[i] = (float8)(START);
#pragma unroll
  for (int ky = 0; ky < KH; ++ky) {
    const int y = y0 + ky * DILATION_Y;
    if (y < 0 || y >= IH) continue;
#if !defined(MAXIMUM) && !defined(MEAN)
    float8 w[KW];
#pragma unroll
    for (int kx = 0; kx < KW; ++kx) w[kx] = LOAD_V_T(wei + (ky * KW + kx) * C + c);
#endif
#pragma unroll
    for (int t = 0; t < TAKEN; ++t) {
      const bool there = x0 + t >= 0 && x0 + t < IW;
      const float8 v = there ? LOAD_V_T(src + (y * IW + x0 + t) * C) : (float8)(START);
#pragma unroll
      for (int i = 0; i < XS; ++i)
#pragma unroll
        for (int kx = 0; kx < KW; ++kx)
#ifdef MAXIMUM
          if (i * STRIDE_X + kx * DILATION_X == t) acc[i] = (acc[i] >= v) || (acc[i] != acc[i]) ? acc[i] : v;
#elif defined(MEAN)
          if (i * STRIDE_X + kx * DILATION_X == t) acc[i] += v;
#else
          if (i * STRIDE_X + kx * DILATION_X == t) acc[i] = fma(v, w[kx], acc[i]);
#endif
    }
  }
#pragma unroll
  for (int i = 0; i < XS; ++i) {
    if (x + i >= OW) continue;
    const int o = (line * OW + x + i) * C + c;
    float8 v = acc[i];
#ifdef MEAN
    const int columns = COUNTED(x0 + i * STRIDE_X, DILATION_X, IW, COUNT_W, KW);
    v /= (float)(COUNTED(y0, DILATION_Y, IH, COUNT_H, KH) * columns);
#endif
#ifdef BIAS_T
    v += BIAS_V(bia + c);
#endif
    v = POST_V(v, o);
    STORE_V(v, dst + o);
  }
}
