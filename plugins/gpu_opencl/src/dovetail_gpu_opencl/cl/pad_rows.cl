// dst[r][x] = src[PLACE(r)][x - BEGIN] inside the source, for CPUs: elsewhere as pad.cl, along the last axis FOLD(c) is the
// source coordinate for c = x - BEGIN outside it.
//
// A work item moves one row. NDRange: (ROWS, rounded up to the local size).
//
// PLACE(r) and INSIDE(r) are expressions of the row r and of the arguments SIZES, of which ROWS, WIDTH (of dst), FROM (the width
// of src) and BEGIN are some. Without FOLD elements outside are fill, 0 or with HAS_FILL an argument.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define ROWS 1
#define WIDTH 1
#define FROM 1
#define BEGIN 0
#define PLACE(r) (r)
#define INSIDE(r) 1
#define SIZES
#endif
#ifdef HAS_FILL
#define FILL_ARG , __global const T* restrict fill
#define FILL fill[0]
#else
#define FILL_ARG
#define FILL ((T)(0))
#endif
#ifdef FOLD
#define OUTSIDE(x) from[FOLD((x) - BEGIN)]
#else
#define OUTSIDE(x) value
#endif

__kernel void pad_rows(__global const T* restrict src FILL_ARG, __global T* restrict dst SIZES) {
  const int r = get_global_id(0);
  if (r >= ROWS) return;
  const T value = FILL;
  __global T* to = dst + r * WIDTH;
  if (!(INSIDE(r))) {
    for (int x = 0; x < WIDTH; ++x) to[x] = value;
    return;
  }
  __global const T* from = src + (PLACE(r)) * FROM;
  const int first = clamp(BEGIN, 0, WIDTH), last = clamp(BEGIN + FROM, first, WIDTH);
  for (int x = 0; x < first; ++x) to[x] = OUTSIDE(x);
  for (int x = first; x < last; ++x) to[x] = from[x - BEGIN];
  for (int x = last; x < WIDTH; ++x) to[x] = OUTSIDE(x);
}
