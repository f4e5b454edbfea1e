// An image of 8-bit numbers in any layout with channels innermost (NHWC), filled up with zeros from C to WIDTH channels.
//
// An item writes V channels of a pixel. NDRange: PIXELS * (WIDTH / V), rounded up to whole groups.
//
// PIXELS, S_B and perhaps S_C are among the arguments SIZES; the divisor PLANE is.
//
// Layout: channel c of pixel p of image b is at b * S_B + p * S_P + c * S_C of src, and at (b * PLANE + p) * WIDTH + c of dst.
#ifndef C
#define C 3
#define WIDTH 8
#define V 8
#define PIXELS 1
#define SIZES , const int PLANE, const uint PLANE_factor, const int PLANE_shift
#define S_B 3
#define S_P 1
#define S_C 1
#endif
#include "quotients.cl"

__kernel void bytes_innermost(__global const uchar* restrict src, __global uint2* restrict dst SIZES) {
  const int item = get_global_id(0), pixel = item / (WIDTH / V), c = item % (WIDTH / V) * V;
  if (pixel >= PIXELS) return;
  const int at = QUOTIENT(pixel, PLANE) * S_B + REMAINDER(pixel, PLANE) * S_P;
#pragma unroll
  for (int e = 0; e < V; e += 8) {
    uint v[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (c + e + i < C) v[i / 4] |= (uint)src[at + (c + e + i) * S_C] << i % 4 * 8;
    dst[(pixel * WIDTH + c + e) / 8] = (uint2)(v[0], v[1]);
  }
}
