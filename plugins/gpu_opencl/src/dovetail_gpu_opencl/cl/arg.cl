// dst[line] = the index of the extreme element of each line: the first of equal ones, or with LAST the last. NaN is extreme.
//
// LARGEST: the largest, else the smallest. A work item computes a line, or with GROUP > 1 a work group does, over local memory.
// NDRange: (lines, rounded up to the local size), or (lines * GROUP) with local size GROUP, a power of two.
//
// Layout: element i of a line l is at l / inner * (size * inner) + l % inner + i * inner of src.
//
// Tunables: GROUP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define VALUE float
#define LARGEST
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifdef LARGEST
#define BEYOND(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#else
#define BEYOND(a, b) ((a) < (b) || ((a) != (a) && (b) == (b)))
#endif
#ifdef LAST
#define LATER(i, j) ((i) > (j))
#else
#define LATER(i, j) ((i) < (j))
#endif

__kernel void arg(__global const T* restrict src, __global long* restrict dst, const int lines, const int size, const int inner) {
#if GROUP > 1
  __local VALUE values[GROUP];
  __local int places[GROUP];
  const int line = get_group_id(0), lane = get_local_id(0);
#else
  const int line = get_global_id(0), lane = 0;
  if (line >= lines) return;
#endif
  __global const T* s = src + line / inner * (size * inner) + line % inner;
  // Lanes past the end of a short line read its first element, which changes nothing.
  int place = lane < size ? lane : 0;
  VALUE best = LOAD_T(s, place * inner);
  for (int i = lane + GROUP; i < size; i += GROUP) {
    const VALUE x = LOAD_T(s, i * inner);
#ifdef LAST
    if (!BEYOND(best, x)) {
#else
    if (BEYOND(x, best)) {
#endif
      best = x;
      place = i;
    }
  }
#if GROUP > 1
  values[lane] = best;
  places[lane] = place;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int n = GROUP / 2; n > 0; n /= 2) {
    if (lane < n) {
      const VALUE x = values[lane + n];
      const int i = places[lane + n];
      if (BEYOND(x, values[lane]) || (!BEYOND(values[lane], x) && LATER(i, places[lane]))) {
        values[lane] = x;
        places[lane] = i;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  place = places[0];
#endif
  if (lane == 0) dst[line] = place;
}
