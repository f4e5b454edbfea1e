// Convolution of 8-bit integers in up to three dimensions, any groups: dst[n][m][z][y][x] = result of
// bia[m] + sum over c, kz, ky, kx of (src - X_ZERO) * (wei - W_ZERO(m)), exact; elements outside count as X_ZERO.
//
// A work item computes one output element in int, which wraps.
// NDRange: (output elements, rounded up to the local size); SIZE is the number of output elements.
// The sizes of images are among the arguments SIZES: SIZE, and P, the pixels of an image of dst, OH and OW, which are divisors.
//
// Layout: src and dst dense NCDHW (missing axes of size 1), or NDHWC with INNERMOST; wei dense [M][C][KD][KH][KW], C the input
// channels of a group; bia [M].
// X_ZERO and W_ZERO(m) are zero points, read from x_zero and w_zero, which may be NULL. STORE_SUM(o, s, z, m, n) makes element o
// of dst of the sum s for output channel n; RESULT_ARGS is what it reads (see kernels/_integer.py).
//
// Tunables: the local size.
#ifndef X
#define X uchar
#define W char
#define T int
#define X_ZERO 0
#define W_ZERO(m) 0
#define RESULT_ARGS
#define STORE_SUM(o, s, z, m, n) (dst[o] = (s))
#define SIZE out
#define P out
#define SIZES , const int out, const uint out_factor, const int out_shift
#define OUT out
#define GROUPS 1
#define C 1
#define M 1
#endif
#include "windows.cl"
#include "quotients.cl"
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif
#ifdef HAS_BIAS
#define BIAS(m) bia[m]
#else
#define BIAS(m) 0
#endif
#define MG (M / GROUPS)
#ifdef INNERMOST
#define STEP_C 1
#define STEP_X (GROUPS * C)
#else
#define STEP_C (ID * IH * IW)
#define STEP_X 1
#endif

__kernel void conv_integer(__global const X* restrict src, __global const W* restrict wei, __global const X* restrict x_zero,
                           __global const W* restrict w_zero, __global const int* restrict bia,
                           __global T* dst SIZES RESULT_ARGS POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= SIZE) return;
#ifdef INNERMOST
  const int m = o % M, pixel = o / M;
#else
  const int plane = QUOTIENT(o, P), m = plane % M, pixel = plane / M * P + REMAINDER(o, P);
#endif
  const int n = QUOTIENT(pixel, P), place = REMAINDER(pixel, P), line = QUOTIENT(place, OW);
  const int ox = REMAINDER(place, OW), oy = REMAINDER(line, OH), oz = QUOTIENT(line, OH);
  const int x0 = ox * STRIDE_X - PAD_X, y0 = oy * STRIDE_Y - PAD_Y, z0 = oz * STRIDE_Z - PAD_Z;
  __global const X* s = src + n * (GROUPS * C * ID * IH * IW) + m / MG * C * STEP_C;
  __global const W* w = wei + m * (C * KD * KH * KW);
  const int left = X_ZERO, right = W_ZERO(m);
  int sum = BIAS(m);
  for (int c = 0; c < C; ++c, s += STEP_C)
    for (int kz = 0; kz < KD; ++kz)
      for (int ky = 0; ky < KH; ++ky)
        for (int kx = 0; kx < KW; ++kx, ++w) {
          const int z = z0 + kz * DILATION_Z, y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
          if (z >= 0 && z < ID && y >= 0 && y < IH && x >= 0 && x < IW)
            sum += (s[((z * IH + y) * IW + x) * STEP_X] - left) * (*w - right);
        }
  STORE_SUM(o, sum, 0, 0, m);
}
