// Pooling in two dimensions for CPUs: dst[plane] = post(maximum or mean of src[plane] over each window).
//
// A work item computes one row of output: vectors of VEC elements along x from FIRST up to LAST, where no window leaves the input
// to the left or right, single elements elsewhere.
// NDRange: (OH, planes, 1), local size 1.
//
// MAXIMUM: the largest element, NaN wins. POWER, 1 or 2: the root of the sum of the magnitudes to that power. Otherwise the mean:
// over elements inside the input, or with COUNT_PADS over those inside the input and its pads, which end at COUNT_H and COUNT_W.
//
// Layout: src [planes][IH][IW] and dst [planes][OH][OW] dense.
//
// Sizes of tensors are arguments, so that planes of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: VEC (at most 8, see capabilities.py).
#include "image_rows.cl"
#ifdef MAXIMUM
#define START (-INFINITY)
#define JOIN(v, acc) ((v) > (acc) || (v) != (v) ? (v) : (acc))
#define RESULT(acc, count) (acc)
#elif defined(POWER)
#include "norms.cl"
#define START 0
#define JOIN(v, acc) ((acc) + POWERED(v))
#define RESULT(acc, count) ROOT(acc)
#else
#define START 0
#define JOIN(v, acc) ((acc) + (v))
#define RESULT(acc, count) ((acc) / (ACC)(count))
#endif

// The taps of a window that starts at `at`: how many start before 0, and before `end`.
static int before(const int at, const int end, const int dilation, const int taps) {
  return at < end ? min(taps, (end - at - 1) / dilation + 1) : 0;
}

static int counted(const int at, const int size, const int padded, const int dilation, const int taps) {
#ifdef COUNT_PADS
  return before(at, padded, dilation, taps);
#else
  return max(0, before(at, size, dilation, taps) - before(at, 0, dilation, taps));
#endif
}

static ACC single(__global const T* s, const int y0, const int x0, const int IH, const int IW) {
  ACC acc = START;
  for (int ky = 0; ky < KH; ++ky) {
    const int y = y0 + ky * DILATION_Y;
    for (int kx = 0; kx < KW; ++kx) {
      const int x = x0 + kx * DILATION_X;
      if (y >= 0 && y < IH && x >= 0 && x < IW) {
        const ACC v = s[y * IW + x];
        acc = JOIN(v, acc);
      }
    }
  }
  return acc;
}

__kernel void pool_rows(__global const T* restrict src, __global T* dst, const int IH, const int IW, const int OH, const int OW,
                        const int PAD_Y, const int PAD_X, const int FIRST, const int LAST, const int COUNT_H,
                        const int COUNT_W POST_ARGS) {
  const int oy = get_global_id(0), plane = get_global_id(1);
  __global const T* s = src + plane * (IH * IW);
  const int y0 = oy * STRIDE_Y - PAD_Y, row = (plane * OH + oy) * OW;
  const int down = counted(y0, IH, COUNT_H, DILATION_Y, KH);
  const int whole = LAST - FIRST < VEC ? FIRST : LAST;
  for (int done = FIRST; done < whole; done += VEC) {
    // The last vector begins among elements that are done: only the others are stored, as operands may be where dst is.
    const int ox = min(done, LAST - VEC);
    VACC acc = (VACC)(START);
#pragma unroll
    for (int ky = 0; ky < KH; ++ky) {
      const int y = y0 + ky * DILATION_Y;
      if (y >= 0 && y < IH)
#pragma unroll
        for (int kx = 0; kx < KW; ++kx) {
          const VACC v = load(s + y * IW + ox * STRIDE_X - PAD_X + kx * DILATION_X);
          acc = JOIN(v, acc);
        }
    }
    acc = RESULT(acc, down * KW);
    if (ox == done) {
      VSTORE(POST_V(acc, row + ox), dst + row + ox);
    } else {
      ACC results[VEC] __attribute__((aligned(sizeof(VACC))));
      *(VACC*)results = acc;
      for (int o = row + done; o < row + LAST; ++o) dst[o] = (T)(POST(results[o - row - ox], o));
    }
  }
  for (int ox = 0; ox < OW; ++ox) {
    if (ox == FIRST) ox = whole;
    if (ox == OW) break;
    const int x0 = ox * STRIDE_X - PAD_X;
    const ACC acc = single(s, y0, x0, IH, IW);
    dst[row + ox] = (T)(POST(RESULT(acc, down * counted(x0, IW, COUNT_W, DILATION_X, KW)), row + ox));
  }
}
