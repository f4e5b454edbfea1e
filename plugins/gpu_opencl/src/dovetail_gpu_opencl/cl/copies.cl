// Several moves at once, each between two strided places, of words of 1 to 16 bytes or of numbers of two types: COPIES is, for
// each,
//   if (o < size) { dst[its place of o] = src[its place of o]; return; } o -= size;
//
// NDRange: (all sizes together, rounded up to the local size).
//
// PLACES are src and dst of each move, with their types; NUMBERS names the sizes, strides and offsets, which `numbers` has in
// turn.
//
// Tunables: the local size.
#ifndef PLACES
#define PLACES __global const uint* src, __global uint* dst
#define NUMBERS const int size = numbers[0];
#define COPIES if (o < size) dst[o] = src[o];
#endif

__kernel void copies(PLACES, __constant int* numbers) {
  NUMBERS
  int o = get_global_id(0);
  COPIES
}
