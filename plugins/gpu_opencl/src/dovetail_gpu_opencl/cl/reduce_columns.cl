// dst[o][i] = post(END(join of ELEMENT(src[BASE(o) + AT(r) + i]) over r < COUNT)) for o < ROWS and i < INNER: for CPUs, in
// vectors.
//
// A work item computes STRIP neighbouring elements. NDRange: (strips of all rows, rounded up to the local size).
//
// As reduce.cl: BASE(o) and AT(r) address src, by the arguments SIZES, of which ROWS, COUNT and INNER are three; JOIN(a, b) is
// associative, START its neutral element.
//
// Tunables: STRIP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define R float
#define STORE_R(p, i, v) ((p)[i] = (v))
#define ACC float
#define ROWS 1
#define COUNT 1
#define INNER 1
#define STRIP 8
#define BASE(o) (o)
#define AT(r) (r)
#define ELEMENT(x) (x)
#define JOIN(a, b) (a + b)
#define START 0
#define END(a) (a)
#define SIZES
#endif
#define PART 512
#include "post.cl"
#include "joins.cl"

#define TAKE(width)                             \
  for (int i = 0; i < width; ++i) {             \
    const ACC x = LOAD_T(s, AT(r) + i);         \
    const ACC e = ELEMENT(x);                   \
    sum[i] = JOIN(sum[i], e);                   \
  }

__kernel void reduce_columns(__global const T* restrict src, __global R* dst SIZES POST_ARGS) {
  const int strips = (INNER + STRIP - 1) / STRIP, item = get_global_id(0);
  if (item >= ROWS * strips) return;
  const int row = item / strips, first = item % strips * STRIP, width = min(STRIP, INNER - first);
  __global const T* s = src + BASE(row) + first;
  ACC acc[STRIP], sum[STRIP];
  for (int i = 0; i < STRIP; ++i) acc[i] = START;
  // In two levels, as in reduce.cl.
  for (int begin = 0; begin < COUNT; begin += PART) {
    const int end = COUNT - begin > PART ? begin + PART : COUNT;
    for (int i = 0; i < STRIP; ++i) sum[i] = START;
    if (width == STRIP) {
      for (int r = begin; r < end; ++r) TAKE(STRIP)
    } else {
      for (int r = begin; r < end; ++r) TAKE(width)
    }
    for (int i = 0; i < STRIP; ++i) acc[i] = JOIN(acc[i], sum[i]);
    if (end == COUNT) break;  // before the next step leaves int
  }
  for (int i = 0; i < width; ++i) {
    const int o = row * INNER + first + i;
    const ACC sums = acc[i];
    const ACC value = END(sums);
    STORE_R(dst, o, POST(value, o));
  }
}
