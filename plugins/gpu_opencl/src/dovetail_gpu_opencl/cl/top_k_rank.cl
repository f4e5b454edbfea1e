// values and indices [outer][kept][inner] = the `kept` first elements of each line in descending order, of equal ones the lower
// index first; without LARGEST in ascending order. NaN counts as larger than every number. Either may be NULL.
//
// Of an element, the work items of a column of a work group count those elements of its line that come before it, each in its
// part of the line. Their sum is the place of the element.
// NDRange: (lines * size rounded up to the local size, parts), the local size (elements, parts), together at most 512.
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
  const int o = get_global_id(0), part = get_local_id(1), parts = get_local_size(1);
  // Neighbours take neighbouring elements of a line where inner is 1, else neighbouring lines.
  const int line = o / (size * inner) * inner + o % inner, at = o / inner % size;
  __global const T* s = src + line / inner * (size * inner) + line % inner;
  const int share = (size + parts - 1) / parts, first = part * share, end = min(first + share, size);
  VALUE x = 0;
  int rank = 0;
  if (o < lines * size) {
    x = LOAD_T(s, at * inner);
    for (int i = first; i < min(end, at); ++i) {
      const VALUE y = LOAD_T(s, i * inner);
      rank += !(BEFORE(x, y));
    }
    for (int i = max(first, at + 1); i < end; ++i) {
      const VALUE y = LOAD_T(s, i * inner);
      rank += BEFORE(y, x);
    }
  }
  __local int ranks[512];
  const int element = get_local_id(0), elements = get_local_size(0);
  ranks[part * elements + element] = rank;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (part || o >= lines * size) return;
  for (int i = 1; i < parts; ++i) rank += ranks[i * elements + element];
  if (rank >= kept) return;
  const int place = line / inner * (kept * inner) + rank * inner + line % inner;
  if (values) STORE_T(values, place, x);
  if (indices) indices[place] = at;
}
