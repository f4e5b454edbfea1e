// dst[o] = INSIDE(o) ? src[PLACE(o)] : fill for o < SIZE, in words of 1 to 16 bytes; fill is 0, or with HAS_FILL an argument.
//
// NDRange: (SIZE, rounded up to the local size).
//
// PLACE(o) and INSIDE(o) are expressions of the flat index o and of the arguments SIZES, of which SIZE is one.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define SIZE 1
#define PLACE(o) (o)
#define INSIDE(o) 1
#define SIZES
#endif
#ifdef HAS_FILL
#define FILL_ARG , __global const T* restrict fill
#define FILL fill[0]
#else
#define FILL_ARG
#define FILL ((T)(0))
#endif

__kernel void pad(__global const T* restrict src FILL_ARG, __global T* restrict dst SIZES) {
  const int o = get_global_id(0);
  if (o >= SIZE) return;
  T value = FILL;
  if (INSIDE(o)) value = src[PLACE(o)];
  dst[o] = value;
}
