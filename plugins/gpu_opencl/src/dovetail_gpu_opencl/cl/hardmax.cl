// dst = 1 at the first largest element of each line, 0 elsewhere; a NaN counts as the largest.
//
// A work item computes a line. NDRange: (lines, rounded up to the local size).
//
// Layout: element i of a line l is at l / inner * (size * inner) + l % inner + i * inner.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define VALUE float
#endif

__kernel void hardmax(__global const T* restrict src, __global T* restrict dst, const int lines, const int size,
                      const int inner) {
  const int line = get_global_id(0);
  if (line >= lines || size == 0) return;
  const int base = line / inner * (size * inner) + line % inner;
  VALUE best = LOAD_T(src, base);
  int place = 0;
  for (int i = 1; i < size; ++i) {
    const VALUE x = LOAD_T(src, base + i * inner);
    if (x > best || (x != x && best == best)) {
      best = x;
      place = i;
    }
  }
  for (int i = 0; i < size; ++i) STORE_T(dst, base + i * inner, (VALUE)(i == place));
}
