// An image in any layout as halves, of which TWO makes two, with channels innermost (NHWC), filled up with zeros from C to WIDTH
// channels.
//
// An item writes V channels of a pixel. NDRange: PIXELS * (WIDTH / V), rounded up to whole groups.
//
// PIXELS and steps may be among the arguments SIZES; the divisor PLANE is.
// Layout: channel c of pixel p of image b is at b * S_B + p * S_P + c * S_C of src, and at (b * PLANE + p) * WIDTH + c of dst.
#include "halves.cl"
#ifndef SOURCE_T
#define SOURCE_T float
#define LOAD_SOURCE_T(p, i) ((p)[i])
#define C 3
#define WIDTH 4
#define V 4
#define PIXELS 1
#define S_B 3
#define SIZES , const int PLANE, const uint PLANE_factor, const int PLANE_shift
#define S_P 1
#define S_C 1
#endif
#ifndef TWO
#define TWO(low, high) two_halves(low, high)
#endif
#include "quotients.cl"

__kernel void channels_innermost(__global const SOURCE_T* restrict src, __global uint2* restrict dst SIZES) {
  const int item = get_global_id(0), pixel = item / (WIDTH / V), c = item % (WIDTH / V) * V;
  if (pixel >= PIXELS) return;
  const int at = QUOTIENT(pixel, PLANE) * S_B + REMAINDER(pixel, PLANE) * S_P;
#pragma unroll
  for (int e = 0; e < V; e += 4) {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = c + e + i < C ? (float)LOAD_SOURCE_T(src, at + (c + e + i) * S_C) : 0.0f;
    dst[(pixel * WIDTH + c + e) / 4] = (uint2)(TWO(v[0], v[1]), TWO(v[2], v[3]));
  }
}
