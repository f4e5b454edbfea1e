// dst[n][y][x][c] = the greatest of src in the window of (y, x), for 8-bit numbers whose channels are innermost.
//
// A work item computes one output pixel, 16 channels at once. NDRange: (OH * OW, N), local size 1. With SPREAD, for GPUs, it
// computes 16 channels of a pixel. NDRange: (N * OH * OW * ceil(C / 16), rounded up to the local size); SIZE is the product,
// PIXELS is OH * OW.
// Where C is a multiple of 16, GPUs have max_pool_words.cl.
//
// Layout: src [N][IH][IW][C], dst [N][OH][OW][C]. LOWEST is the least number of T. Sizes are arguments, so that all share a
// program.
#ifndef T
#define T uchar
#define LOWEST 0
#define SIZES
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define VT CAT(T, 16)
// Not vload and vstore: some drivers leave them as function calls, which spill every register.
typedef struct __attribute__((packed)) {
  VT v;
} PACKED;

__kernel void max_pool_channels(__global const T* restrict src, __global T* restrict dst, const int C, const int IH, const int IW,
                                const int OW, const int KH, const int KW, const int STRIDE_Y, const int STRIDE_X,
                                const int DILATION_Y, const int DILATION_X, const int PAD_Y, const int PAD_X SIZES) {
#ifdef SPREAD
  const int item = get_global_id(0), chunks = (C + 15) / 16, pixels = PIXELS, p = item / chunks % pixels;
  if (item >= SIZE) return;
  int c = item % chunks * 16;
  const int image = item / chunks / pixels, last = min(c + 16, C);
#else
  int c = 0;
  const int p = get_global_id(0), image = get_global_id(1), pixels = get_global_size(0), last = C;
#endif
  const int y0 = p / OW * STRIDE_Y - PAD_Y, x0 = p % OW * STRIDE_X - PAD_X;
  src += image * (IH * IW * C);
  dst += (image * pixels + p) * C;
  for (; c + 16 <= last; c += 16) {
    VT most = (VT)(LOWEST);
    for (int ky = 0; ky < KH; ++ky)
      for (int kx = 0; kx < KW; ++kx) {
        const int y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
        if (y < 0 || y >= IH || x < 0 || x >= IW) continue;
        const VT v = ((__global const PACKED*)(src + (y * IW + x) * C + c))->v;
        most = v > most ? v : most;
      }
    ((__global PACKED*)(dst + c))->v = most;
  }
  for (; c < last; ++c) {
    T most = LOWEST;
    for (int ky = 0; ky < KH; ++ky)
      for (int kx = 0; kx < KW; ++kx) {
        const int y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
        if (y >= 0 && y < IH && x >= 0 && x < IW) most = max(most, src[(y * IW + x) * C + c]);
      }
    dst[c] = most;
  }
}
