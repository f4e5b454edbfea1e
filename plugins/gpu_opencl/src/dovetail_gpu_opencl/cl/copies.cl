// Several moves at once, of words of 1 to 16 bytes, each between two strided places: COPIES is, for each of them,
//   if (o < size) { dst[its place of o] = src[its place of o]; return; } o -= size;
//
// NDRange: (all sizes together, rounded up to the local size).
//
// PLACES are src and dst of each move, and the numbers of the places.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define PLACES __global const T* src, __global T* dst, const int size
#define COPIES if (o < size) dst[o] = src[o];
#endif

__kernel void copies(PLACES) {
  int o = get_global_id(0);
  COPIES
}
