// dst = the sum, or what else JOIN makes of it beginning with START, of all elements of a line up to each one: without itself
// when exclusive, from the end when reverse.
//
// A work item computes a line. NDRange: (lines, rounded up to the local size). With ABREAST > 1 it computes so many lines side by
// side, and there are ceil(lines / ABREAST) items. With AXIS, the C type of an axis that is known only now, there is a work item
// for each of the `lines` elements, of which those at the beginning of a line work.
//
// Layout: element i of a line l is at l / inner * (size * inner) + l % inner + i * inner. With AXIS, shape has `rank` sizes and
// then as many strides; an axis out of range is taken as 0 and sets faults[fault] to 1.
//
// With COMPUTED(i), which gives element i of src, from SOURCE_ARGS, src is not in memory.
//
// Tunables: the local size; AHEAD, elements that a work item loads at a time; ABREAST, for CPUs.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define START 0
#define JOIN(a, b) ((a) + (b))
#define AHEAD 1
#define ABREAST 1
#endif

#ifndef COMPUTED
#define SOURCE_ARGS __global const T* restrict src
#define COMPUTED(i) LOAD_T(src, i)
#endif

#ifdef AXIS
#define AXIS_ARGS , __global const AXIS* axis, __global const int* shape, const int rank, __global int* faults, const int fault
#else
#define AXIS_ARGS , const int size, const int inner
#endif

#if ABREAST > 1
__kernel void cum_sum(SOURCE_ARGS, __global T* restrict dst, const int exclusive, const int reverse,
                      const int lines AXIS_ARGS) {
  const int line = get_global_id(0) * ABREAST, count = min(ABREAST, lines - line), side = line % inner;
  if (count <= 0) return;
  ACC sums[ABREAST];
  for (int a = 0; a < ABREAST; ++a) sums[a] = START;
  if (side + ABREAST <= inner && count == ABREAST) {  // neighbours in memory
    for (int i = 0; i < size; ++i) {
      const int o = line / inner * (size * inner) + side + (reverse ? size - 1 - i : i) * inner;
#pragma unroll
      for (int a = 0; a < ABREAST; ++a) {
        const ACC before = sums[a], x = COMPUTED(o + a);
        sums[a] = JOIN(before, x);
        STORE_T(dst, o + a, exclusive ? before : sums[a]);
      }
    }
    return;
  }
  int bases[ABREAST];
  for (int a = 0; a < count; ++a) bases[a] = (line + a) / inner * (size * inner) + (line + a) % inner;
  for (int i = 0; i < size; ++i) {
    const int at = (reverse ? size - 1 - i : i) * inner;
    for (int a = 0; a < count; ++a) {
      const int o = bases[a] + at;
      const ACC before = sums[a], x = COMPUTED(o);
      sums[a] = JOIN(before, x);
      STORE_T(dst, o, exclusive ? before : sums[a]);
    }
  }
}
#else
__kernel void cum_sum(SOURCE_ARGS, __global T* restrict dst, const int exclusive, const int reverse,
                      const int lines AXIS_ARGS) {
  const int line = get_global_id(0);
  if (line >= lines) return;
#ifdef AXIS
  const int wrong = axis[0] < -rank || axis[0] >= rank;
  if (wrong) faults[fault] = 1;
  const int a = wrong ? 0 : (int)axis[0] + (axis[0] < 0 ? rank : 0);
  const int size = shape[a], inner = shape[rank + a], base = line;
  if (line / inner % size) return;
#else
  const int base = line / inner * (size * inner) + line % inner;
#endif
  ACC sum = START;
  for (int first = 0; first < size; first += AHEAD) {
    ACC ahead[AHEAD];
    for (int a = 0; a < AHEAD; ++a) {
      const int n = min(first + a, size - 1);
      ahead[a] = COMPUTED(base + (reverse ? size - 1 - n : n) * inner);
    }
    for (int a = 0; a < AHEAD && first + a < size; ++a) {
      const int o = base + (reverse ? size - 1 - first - a : first + a) * inner;
      const ACC x = ahead[a];
      STORE_T(dst, o, exclusive ? sum : JOIN(sum, x));
      sum = JOIN(sum, x);
    }
  }
}
#endif
