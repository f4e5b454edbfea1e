// dst = data with updates joined, one after the other, where it is known before which updates go to each place.
//
// NDRange: (elements, rounded up to the local size).
//
// Layout: places are slices of `inner` elements; those of place p are updates[list[i]] for i from starts[p] to starts[p + 1].
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define VALUE float
#define JOIN(a, b) ((a) + (b))
#endif

__kernel void scatter_listed(__global const T* restrict data, __global const T* restrict updates, __global T* restrict dst,
                             __global const int* restrict list, __global const int* restrict starts, const int size,
                             const int inner) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int place = o / inner, column = o % inner, end = starts[place + 1];
  VALUE value = LOAD_T(data, o);
#pragma unroll 4
  for (int i = starts[place]; i < end; ++i) {
    const VALUE next = LOAD_T(updates, list[i] * inner + column);
    value = JOIN(value, next);
  }
  STORE_T(dst, o, value);
}
