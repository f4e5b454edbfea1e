// dst[DST(o)] = src[SRC(o)] for o < SIZE: moves words of 1 to 16 bytes between two strided places.
//
// NDRange: (SIZE, rounded up to the local size).
//
// SRC(o) and DST(o) are expressions of the flat index o, in words, and of the arguments SIZES, of which SIZE is one.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define SIZE 1
#define SRC(o) (o)
#define DST(o) (o)
#define SIZES
#endif

__kernel void copy(__global const T* restrict src, __global T* restrict dst SIZES) {
  const int o = get_global_id(0);
  if (o < SIZE) dst[DST(o)] = src[SRC(o)];
}
