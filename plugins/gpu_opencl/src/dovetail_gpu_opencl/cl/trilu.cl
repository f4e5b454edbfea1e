// dst = src where the column is not before (upper) or not after (lower) that of diagonal[0], which is 0 when NULL; else 0.
//
// A work item moves one word of 1 to 16 bytes. NDRange: (size, rounded up to the local size).
//
// Layout: src and dst [..][rows][columns].
//
// Tunables: the local size.
#ifndef T
#define T uint
#endif

__kernel void trilu(__global const T* restrict src, __global const long* restrict diagonal, __global T* restrict dst,
                    const int size, const int rows, const int columns, const int upper) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const long distance = o % columns - o / columns % rows, k = diagonal ? diagonal[0] : 0;
  T value = (T)(0);
  if (upper ? distance >= k : distance <= k) value = src[o];
  dst[o] = value;
}

// The same for CPUs: a work item moves a row. NDRange: (rows of all matrices, rounded up to the local size), with size their
// number.
__kernel void trilu_rows(__global const T* restrict src, __global const long* restrict diagonal, __global T* restrict dst,
                         const int size, const int rows, const int columns, const int upper) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const long first = o % rows + (diagonal ? clamp(diagonal[0], -(long)rows, (long)columns) : 0);
  // Columns before this one are below the diagonal (upper), or not above it (lower).
  const int edge = clamp(first + (upper ? 0 : 1), 0L, (long)columns);
  const int begin = upper ? edge : 0, end = upper ? columns : edge;
  src += o * columns;
  dst += o * columns;
  for (int i = 0; i < begin; ++i) dst[i] = (T)(0);
  for (int i = begin; i < end; ++i) dst[i] = src[i];
  for (int i = end; i < columns; ++i) dst[i] = (T)(0);
}
