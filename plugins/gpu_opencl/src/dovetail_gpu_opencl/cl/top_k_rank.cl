// values and indices [outer][kept][inner] = the `kept` first elements of each line in descending order, of equal ones the lower
// index first; without LARGEST in ascending order. NaN counts as larger than every number. Either may be NULL.
//
// A work item takes an element, counts the elements of its line that come before it, and writes it to that place.
// NDRange: (lines * size, rounded up to the local size).
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

__kernel void top_k_rank(__global const T* restrict src, __global T* restrict values, __global long* restrict indices,
                         const int lines, const int size, const int inner, const int kept) {
  const int o = get_global_id(0);
  if (o >= lines * size) return;
  // Neighbours take neighbouring elements of a line where inner is 1, else neighbouring lines.
  const int line = o / (size * inner) * inner + o % inner, at = o / inner % size;
  __global const T* s = src + line / inner * (size * inner) + line % inner;
  const VALUE x = LOAD_T(s, at * inner);
  int rank = 0;
  for (int i = 0; i < at; ++i) {
    const VALUE y = LOAD_T(s, i * inner);
    rank += !(BEFORE(x, y));
  }
  for (int i = at + 1; i < size; ++i) {
    const VALUE y = LOAD_T(s, i * inner);
    rank += BEFORE(y, x);
  }
  if (rank >= kept) return;
  const int place = line / inner * (kept * inner) + rank * inner + line % inner;
  if (values) STORE_T(values, place, x);
  if (indices) indices[place] = at;
}
