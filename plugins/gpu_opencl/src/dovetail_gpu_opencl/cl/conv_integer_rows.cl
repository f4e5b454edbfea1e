// Convolution of 8-bit integers in two dimensions for CPUs: dst[n][m][p] = result of
// bia[m] + sum over c, ky, kx of (src - X_ZERO) * wei, exact; what lies outside counts as X_ZERO.
//
// widen: wide = src - X_ZERO as float, RUN elements a work item; NDRange: (size / RUN).
//
// conv_integer_rows: a work item computes ROWS output pixels of one image (p counts a plane row by row) for COLS output channels of
// one group, in vectors along the channels; scalars of wide are broadcast. Products are added in float, CHUNK of them at most: their
// sum is a whole number below 2^24 (CHUNK * 255 * 255), which float holds exactly. The sums of chunks are added in int, which wraps.
// No local memory. NDRange: (ceil(OH * OW / ROWS), ceil(M / GROUPS / COLS) * GROUPS, N), local size 1.
//
// Layout: src, wide and dst dense NCHW; wei in float, with the zero points subtracted, packed as
// [GROUPS][ceil(M / GROUPS / COLS)][KH][KW][C][COLS], padded with zeros, where C is the number of input channels of a group;
// bia [M]. X_ZERO is the zero point read from x_zero, which may be NULL. STORE_SUM(o, s, z, m, n) makes element o of dst of the
// sum s for output channel m; RESULT_ARGS is what it reads (see kernels/_integer.py).
//
// Sizes are arguments, so that convolutions of all sizes share a program: drivers for CPUs take long to build one.
//
// Tunables: RUN; ROWS; VEC (at most 8, see capabilities.py); COLS = 2 * VEC.
#ifndef X
#define X uchar
#define T int
#define X_ZERO 0
#define RESULT_ARGS
#define STORE_SUM(o, s, z, m, n) (dst[o] = (s))
#endif
#ifndef ROWS
#define ROWS 6
#define RUN 512
#endif
#ifndef VEC
#define VEC 8
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif
#ifdef HAS_BIAS
#define BIAS(m) bia[m]
#else
#define BIAS(m) 0
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define VFLOAT CAT(float, VEC)
#define VINT CAT(int, VEC)
#define COLS (2 * VEC)
#define CHUNK 256
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  VFLOAT v;
} PACKED;
#define VLOAD(p) (((__global const PACKED*)(p))->v)

__kernel void widen(__global const X* restrict src, __global const X* restrict x_zero, __global float* restrict wide,
                    const int size) {
  const int first = get_global_id(0) * RUN, last = min(first + RUN, size);
  const int zero = X_ZERO;
  for (int i = first; i < last; ++i) wide[i] = (float)(src[i] - zero);
}

__kernel void conv_integer_rows(__global const float* restrict wide, __global const float* restrict wei,
                                __global const int* restrict bia, __global T* dst, const int GROUPS, const int C, const int M,
                                const int IH, const int IW, const int OH, const int OW, const int KH, const int KW,
                                const int STRIDE_Y, const int STRIDE_X, const int DILATION_Y, const int DILATION_X,
                                const int PAD_Y, const int PAD_X RESULT_ARGS POST_ARGS) {
  const int MG = M / GROUPS, BLOCKS = (MG + COLS - 1) / COLS;
  const int pixel = get_global_id(0) * ROWS;
  const int block = get_global_id(1);
  const int n = get_global_id(2);
  const int group = block / BLOCKS, m0 = (block % BLOCKS) * COLS;
  const int image = (n * GROUPS + group) * C * (IH * IW);
  __global const float* w = wei + block * (KH * KW * C * COLS);
  int y0[ROWS], x0[ROWS];
  VINT low[ROWS], high[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int p = min(pixel + r, OH * OW - 1);
    y0[r] = p / OW * STRIDE_Y - PAD_Y;
    x0[r] = p % OW * STRIDE_X - PAD_X;
    low[r] = high[r] = (VINT)(0);
  }
  VFLOAT lo[ROWS], hi[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) lo[r] = hi[r] = (VFLOAT)(0);
  int added = 0;
  for (int ky = 0; ky < KH; ++ky)
    for (int kx = 0; kx < KW; ++kx) {
      int start[ROWS];
      int inside[ROWS];
      int all = 1;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int y = y0[r] + ky * DILATION_Y, x = x0[r] + kx * DILATION_X;
        inside[r] = y >= 0 && y < IH && x >= 0 && x < IW;
        start[r] = inside[r] ? image + y * IW + x : image;
        all &= inside[r];
      }
      for (int c0 = 0; c0 < C;) {
        const int end = min(C, c0 + CHUNK - added);
        added += end - c0;
#define ADD(value)                                   \
  for (int c = c0; c < end; ++c) {                   \
    const VFLOAT w0 = VLOAD(w), w1 = VLOAD(w + VEC); \
    w += COLS;                                       \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r) { \
      const float x = value;                         \
      lo[r] += x * w0;                               \
      hi[r] += x * w1;                               \
    }                                                \
  }
        if (all) {
          ADD(wide[start[r] + c * (IH * IW)])
        } else {
          ADD(inside[r] ? wide[start[r] + c * (IH * IW)] : 0.0f)
        }
        c0 = end;
        if (added == CHUNK) {
          added = 0;
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            low[r] += CAT(convert_, VINT)(lo[r]);
            high[r] += CAT(convert_, VINT)(hi[r]);
            lo[r] = hi[r] = (VFLOAT)(0);
          }
        }
      }
    }
  int s[ROWS][COLS] __attribute__((aligned(sizeof(VINT))));
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    *(VINT*)s[r] = low[r] + CAT(convert_, VINT)(lo[r]);
    *(VINT*)(s[r] + VEC) = high[r] + CAT(convert_, VINT)(hi[r]);
  }
  const int rows = min(ROWS, OH * OW - pixel), cols = min(COLS, MG - m0);
  for (int c = 0; c < cols; ++c) {
    const int m = group * MG + m0 + c;
    for (int r = 0; r < rows; ++r) STORE_SUM((n * M + m) * (OH * OW) + pixel + r, s[r][c] + BIAS(m), 0, m, 0);
  }
}
