// values and indices [outer][kept][inner] = the `kept` first elements of each line in descending order, of equal ones the lower
// index first; without LARGEST in ascending order. NaN counts as larger than every number.
//
// A work item computes a line: it keeps the best elements so far in order and puts each new one that belongs there in its place.
// NDRange: (lines, rounded up to the local size).
//
// Layout: element i of a line l is at l / inner * (size * inner) + l % inner + i * inner of src.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define VALUE float
#define LARGEST
#endif
#ifdef LARGEST
#define BEFORE(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#else
#define BEFORE(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#endif

__kernel void top_k_insertion(__global const T* restrict src, __global T* values, __global long* indices, const int lines,
                              const int size, const int inner, const int kept) {
  const int line = get_global_id(0);
  if (line >= lines) return;
  __global const T* s = src + line / inner * (size * inner) + line % inner;
  const int first = line / inner * (kept * inner) + line % inner;
  for (int i = 0; i < size; ++i) {
    const VALUE x = LOAD_T(s, i * inner);
    int place = min(i, kept);
    // The element in the last place falls out when there are more than `kept`.
    while (place > 0) {
      const VALUE above = LOAD_T(values, first + (place - 1) * inner);
      if (!BEFORE(x, above)) break;
      if (place < kept) {
        STORE_T(values, first + place * inner, above);
        indices[first + place * inner] = indices[first + (place - 1) * inner];
      }
      --place;
    }
    if (place < kept) {
      STORE_T(values, first + place * inner, x);
      indices[first + place * inner] = i;
    }
  }
}
