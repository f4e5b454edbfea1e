// dst[o] = src[o's own place, but for the coordinate along one axis, which is index[o]], in words of 1 to 16 bytes.
//
// A work item moves one element. NDRange: (size, rounded up to the local size).
//
// Layout: index and dst have one shape; shape has its `rank` sizes, then src's strides, that of the axis being 0; step is that
// stride.
// Negative indices count from the end. For an index out of range, place 0 is read and faults[fault] set to 1.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define INDEX long
#endif

__kernel void gather_elements(__global const T* restrict src, __global const INDEX* restrict index,
                              __global const int* restrict shape, __global T* restrict dst, const int size, const int rank,
                              const int bound, const int step, __global int* faults, const int fault) {
  const int o = get_global_id(0);
  if (o >= size) return;
  INDEX i = index[o];
  if (i < -bound || i >= bound) {
    faults[fault] = 1;
    i = 0;
  }
  int at = (int)(i < 0 ? i + bound : i) * step;
  for (int d = rank - 1, rest = o; d >= 0; rest /= shape[d--]) at += rest % shape[d] * shape[rank + d];
  dst[o] = src[at];
}
