// values and indices [outer][kept][inner] = the `kept` first elements of each line in descending order, of equal ones the lower
// index first; without LARGEST in ascending order. NaN counts as larger than every number. Either may be NULL.
//
// Of an element, PARTS work items count those elements of its line that come before it, each in its part of the line. Their sum is
// the place of the element.
// NDRange: (lines * size rounded up to the local size, PARTS), local size (ELEMENTS, PARTS).
//
// Layout: element i of a line l is at l / inner * (size * inner) + l % inner + i * inner of src.
//
// Tunables: ELEMENTS, PARTS.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define VALUE float
#define LARGEST
#endif
#ifndef PARTS
#define ELEMENTS 64
#define PARTS 1
#endif
#ifdef LARGEST
#define BEFORE(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#else
#define BEFORE(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#endif

__kernel __attribute__((reqd_work_group_size(ELEMENTS, PARTS, 1))) void top_k_rank(__global const T* restrict src, __global T* restrict values, __global long* restrict indices,
                         const int lines, const int size, const int inner, const int kept) {
  const int o = get_global_id(0), part = get_local_id(1), element = get_local_id(0);
  // Neighbours take neighbouring elements of a line where inner is 1, else neighbouring lines.
  const int line = o / (size * inner) * inner + o % inner, at = o / inner % size;
  __global const T* s = src + line / inner * (size * inner) + line % inner;
  const int share = (size + PARTS - 1) / PARTS, first = part * share, end = min(first + share, size);
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
#if PARTS > 1
  __local int ranks[PARTS][ELEMENTS];
  ranks[part][element] = rank;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = part ? PARTS : 1; i < PARTS; ++i) rank += ranks[i][element];
#endif
  if (part || o >= lines * size || rank >= kept) return;
  const int place = line / inner * (kept * inner) + rank * inner + line % inner;
  if (values) STORE_T(values, place, x);
  if (indices) indices[place] = at;
}
