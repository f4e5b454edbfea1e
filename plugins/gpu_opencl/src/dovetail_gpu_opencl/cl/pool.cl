// Pooling in up to three dimensions: dst[n][c] = post(maximum or mean of src[n][c] over each window).
//
// A work item computes one output element. NDRange: (output elements, rounded up to the local size).
//
// Layout: src and dst dense NCDHW (missing axes of size 1); PLANES = N * C. OD, OH and OW are divisors.
//
// MAXIMUM: the largest element, NaN wins. POWER: the POWER-th root of the sum of the magnitudes to that power. Otherwise the
// mean:
// over elements inside the input, or with COUNT_PADS over those inside the input and its pads (COUNT_D, COUNT_H, COUNT_W: the end
// of the padded input).
//
// INDICES: the place of each maximum in src is written too, -1 for a window outside; COLUMNS: counted with the first spatial axis
// fastest.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define MAXIMUM
#define PLANES 1
#define LOWEST -INFINITY
#define SIZES , const int out, const uint out_factor, const int out_shift
#define OUT out
#endif
#include "windows.cl"
#include "quotients.cl"
#include "post.cl"
#include "norms.cl"

// The taps of a window that starts at `at`: the first one from 0 on, and how many start before `end`.
#define FIRST(at, dilation) ((at) < 0 ? (-(at) + (dilation) - 1) / (dilation) : 0)
#define END(at, dilation, end, taps) ((at) < (end) ? min(taps, ((end) - (at) - 1) / (dilation) + 1) : 0)

#ifdef INDICES
#define INDEX_ARG , __global long* restrict indices
// The first of equal elements counts.
#define BETTER(v, acc) ((v) > (acc) || ((v) != (v) && (acc) == (acc)) || place < 0)
#else
#define INDEX_ARG
#define BETTER(v, acc) ((v) > (acc) || (v) != (v))
#endif

__kernel void pool(__global const T* restrict src, __global T* dst INDEX_ARG SIZES POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= PLANES * OD * OH * OW) return;
  const int line = QUOTIENT(o, OW), ox = REMAINDER(o, OW), slice = QUOTIENT(line, OH), oy = REMAINDER(line, OH);
  const int plane = QUOTIENT(slice, OD), oz = REMAINDER(slice, OD);
  const int x0 = ox * STRIDE_X - PAD_X, y0 = oy * STRIDE_Y - PAD_Y, z0 = oz * STRIDE_Z - PAD_Z;
  __global const T* s = src + plane * (ID * IH * IW);
#ifdef MAXIMUM
  ACC acc = LOWEST;
#else
  ACC acc = 0;
#endif
  const int kz0 = FIRST(z0, DILATION_Z), kz1 = END(z0, DILATION_Z, ID, KD);
  const int ky0 = FIRST(y0, DILATION_Y), ky1 = END(y0, DILATION_Y, IH, KH);
  const int kx0 = FIRST(x0, DILATION_X), kx1 = END(x0, DILATION_X, IW, KW);
#ifdef INDICES
  int place = -1;
#endif
  for (int kz = kz0; kz < kz1; ++kz)
    for (int ky = ky0; ky < ky1; ++ky) {
#ifndef MAXIMUM
      // A sum for each row: a single one of very many numbers is rounded too often.
      ACC row = 0;
#endif
      for (int kx = kx0; kx < kx1; ++kx) {
        const int z = z0 + kz * DILATION_Z, y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
        const ACC v = LOAD_T(s, (z * IH + y) * IW + x);
#ifdef MAXIMUM
#ifdef INDICES
#ifdef COLUMNS
        const int at = (x * IH + y) * ID + z;
#else
        const int at = (z * IH + y) * IW + x;
#endif
        if (BETTER(v, acc)) {
          acc = v;
          place = at;
        }
#else
        acc = BETTER(v, acc) ? v : acc;
#endif
#else
#ifdef POWER
        row += POWERED(v);
#else
        row += v;
#endif
#endif
      }
#ifndef MAXIMUM
      acc += row;
#endif
    }
#ifdef INDICES
  indices[o] = place < 0 ? -1 : place + (long)plane * (ID * IH * IW);
#endif
#ifdef MAXIMUM
  STORE_T(dst, o, POST(acc, o));
#elif defined(POWER)
  STORE_T(dst, o, POST(ROOT(acc), o));
#else
#ifdef COUNT_PADS
  const ACC count = (ACC)END(z0, DILATION_Z, COUNT_D, KD) * END(y0, DILATION_Y, COUNT_H, KH) * END(x0, DILATION_X, COUNT_W, KW);
#else
  const ACC count = (ACC)max(kz1 - kz0, 0) * max(ky1 - ky0, 0) * max(kx1 - kx0, 0);
#endif
  STORE_T(dst, o, POST(acc / count, o));
#endif
}
