// dst [outer][LONG][WIDTH] = src [outer][SHORT][WIDTH], with zeros after it; src may be NULL where SHORT is 0.
// NDRange: (outer * LONG * WIDTH, rounded up).
#ifndef T
#define T float
#define LONG 1
#define SHORT 1
#define WIDTH 1
#endif

__kernel void copy_rows(__global const T* src, __global T* dst, const int size) {
  const int e = get_global_id(0);
  if (e >= size) return;
  const int row = e / WIDTH % LONG, outer = e / (WIDTH * LONG);
  dst[e] = row < SHORT ? src[(outer * SHORT + row) * WIDTH + e % WIDTH] : (T)0;
}
