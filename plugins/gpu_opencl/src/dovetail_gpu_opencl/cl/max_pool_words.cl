// dst[n][y][x][c] = the greatest of src in the window of (y, x), for 8-bit numbers whose channels, a multiple of 16, are
// innermost.
//
// A work item computes 16 channels of a pixel. NDRange: (SIZE, rounded up to the local size), SIZE = N * OH * OW * C / 16.
//
// Layout: src [N][IH][IW][C], dst [N][OH][OW][C]. SIZES are arguments, so that all images share a program. SIGN is 0x80808080 for
// int8, whose numbers are in order as unsigned ones with another first bit. A word is compared four times, each of its bytes in
// the highest place once, so that those below do not count.
#ifndef C
#define C 16
#define SIGN 0u
#define KH 1
#define KW 1
#define STRIDE_Y 1
#define STRIDE_X 1
#define DILATION_Y 1
#define DILATION_X 1
#define PAD_Y 0
#define PAD_X 0
#define SIZES                                                                                                 \
  , const int SIZE, const int IH, const int IW, const int OH, const uint OH_factor, const int OH_shift, const int OW, \
      const uint OW_factor, const int OW_shift
#endif
#include "quotients.cl"

__kernel void max_pool_words(__global const uint4* restrict src, __global uint4* restrict dst SIZES) {
  const int item = get_global_id(0), c = item % (C / 16), p = item / (C / 16);
  if (item >= SIZE) return;
  const int row = QUOTIENT(p, OW), n = QUOTIENT(row, OH), image = n * (IH * IW);
  const int y0 = (row - n * OH) * STRIDE_Y - PAD_Y, x0 = (p - row * OW) * STRIDE_X - PAD_X;
  uint4 most[4] = {(uint4)(0), (uint4)(0), (uint4)(0), (uint4)(0)};
#pragma unroll
  for (int k = 0; k < KH * KW; ++k) {
    const int y = y0 + k / KW * DILATION_Y, x = x0 + k % KW * DILATION_X;
    uint4 v = (uint4)(0);
    if (y >= 0 && y < IH && x >= 0 && x < IW) v = src[(image + y * IW + x) * (C / 16) + c] ^ (uint4)(SIGN);
#pragma unroll
    for (int b = 0; b < 4; ++b) most[b] = max(most[b], v << (uint4)(8 * b));
  }
  const uint4 high = (most[0] & 0xff000000u) | (most[1] >> 8 & 0xff0000u);
  dst[item] = (high | (most[2] >> 16 & 0xff00u) | most[3] >> 24) ^ (uint4)(SIGN);
}
