// An image of up to four channels of 8-bit numbers, with its padding, as words of four channels.
//
// An item writes a pixel. NDRange: SIZE = N * PH * PW pixels, rounded up to whole groups.
//
// The sizes of images, the pads, S_B and perhaps S_C are among the arguments SIZES; the divisors PH and PW are.
//
// Layout: pixel (y, x) of image b of dst, [N][PH][PW], is pixel (y - PAD_Y, x - PAD_X) of src, whose channel c is at
// b * S_B + pixel * S_P + c * S_C; outside the image each byte is FILL, a number or that in ZERO_ARG. Channels from C on are zeros.
#ifndef C
#define C 3
#define SIZE 1
#define IH 1
#define IW 1
#define SIZES , const int PH, const uint PH_factor, const int PH_shift, const int PW, const uint PW_factor, const int PW_shift
#define PAD_Y 0
#define PAD_X 0
#define S_B 3
#define S_P 1
#define S_C 1
#define FILL 0
#define ZERO_ARG
#endif
#include "quotients.cl"

__kernel void bytes_padded(__global const uchar* restrict src, __global uint* restrict dst ZERO_ARG SIZES) {
  const int item = get_global_id(0);
  if (item >= SIZE) return;
  const int line = QUOTIENT(item, PW), y = REMAINDER(line, PH) - PAD_Y, x = REMAINDER(item, PW) - PAD_X;
  const bool inside = y >= 0 && y < IH && x >= 0 && x < IW;
  const int at = QUOTIENT(line, PH) * S_B + (y * IW + x) * S_P;
  uint word = 0;
#pragma unroll
  for (int c = 0; c < C; ++c) word |= (inside ? (uint)src[at + c * S_C] : (uint)(FILL)) << 8 * c;
  dst[item] = word;
}
