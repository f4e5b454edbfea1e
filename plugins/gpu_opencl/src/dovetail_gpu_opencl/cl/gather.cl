// dst[a][j][i] = src[a][index[j]][i]: slices of src [OUTER][AXIS][INNER] at COUNT indices, in words of 1 to 16 bytes.
//
// Negative indices count from the end. With CHECKED element 0 is read for an index out of range, and faults[fault] set to 1.
// With COMPUTED words are numbers, to which post-ops are applied.
// SIZE = OUTER * COUNT * INNER, AXIS and the divisors COUNT and INNER are among the arguments SIZES.
// NDRange: (SIZE, rounded up to the local size).
//
// Tunables: the local size.
#ifndef T
#define T uint
#define INDEX long
#define CHECKED
#define SIZE 1
#define AXIS 1
#define COUNT INNER
#define SIZES , const int INNER, const uint INNER_factor, const int INNER_shift
#endif
#include "quotients.cl"
#include "post.cl"

#ifdef CHECKED
#define FAULTS , __global int* faults, const int fault
#else
#define FAULTS
#endif

__kernel void gather(__global const T* restrict src, __global const INDEX* restrict index,
    __global T* dst FAULTS SIZES POST_ARGS) {
#ifdef STEP
  const long first = get_global_id(0) * (long)STEP;
  const int end = min(first + STEP, (long)SIZE);
  int o = min(first, (long)end);
  while (o < end) {
#else
  const int o = get_global_id(0);
  if (o >= SIZE) return;
#endif
  const int line = QUOTIENT(o, INNER), i = REMAINDER(o, INNER), j = REMAINDER(line, COUNT), a = QUOTIENT(line, COUNT);
  INDEX at = index[j];
#ifdef CHECKED
  if (at < -AXIS || at >= AXIS) {
    faults[fault] = 1;
    at = 0;
  }
#endif
  if (at < 0) at += AXIS;
  const int place = (a * AXIS + (int)at) * INNER + i;
#ifdef STEP
    const int from = o, stop = min(end, o + INNER - i);
    for (; o < stop; ++o) dst[o] = src[place + o - from];
  }
#elif defined COMPUTED
  STORE_T(dst, o, POST(LOAD_T(src, place), o));
#else
  dst[o] = src[place];
#endif
}
