// Several moves at once, each between two strided places, of words of 1 to 16 bytes or of numbers of two types: COPIES is, for each,
//   if (o < size) { dst[its place of o] = src[its place of o]; return; } o -= size;
//
// NDRange: (all sizes together, rounded up to the local size).
//
// PLACES are src and dst of each move, with their types, and the numbers of the places.
//
// Tunables: the local size.
#ifndef PLACES
#define PLACES __global const uint* src, __global uint* dst, const int size
#define COPIES if (o < size) dst[o] = src[o];
#endif

__kernel void copies(PLACES) {
  int o = get_global_id(0);
  COPIES
}
