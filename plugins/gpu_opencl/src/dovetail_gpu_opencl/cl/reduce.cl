// dst[o] = post(END(join of ELEMENT(src[BASE(o) + AT(r)]) over r < COUNT)) for o < SIZE.
//
// One work item computes an output element, or with GROUP > 1 a work group does, over local memory.
// NDRange: (SIZE, rounded up to the local size), or (SIZE * GROUP) with local size GROUP, a power of two.
//
// BASE(o) and AT(r) address src, by the arguments SIZES, of which SIZE and COUNT are two. JOIN(a, b) is associative, START its
// neutral element. SHIFTED is the logarithm of a sum of exponentials: the largest element is found first and subtracted, so that
// nothing overflows.
//
// With COMPUTED(i), which gives element i of src, from SOURCE_ARGS, src is not in memory.
//
// Tunables: GROUP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define R float
#define STORE_R(p, i, v) ((p)[i] = (v))
#define ACC float
#define SIZE 1
#define COUNT 1
#define GROUP 1
#define BASE(o) (o)
#define AT(r) (r)
#define ELEMENT(x) (x)
#define JOIN(a, b) (a + b)
#define START 0
#define END(a) (a)
#define SIZES
#endif
#ifdef COMPUTED
#define TAKEN(r) COMPUTED(base + AT(r))
#else
#define SOURCE_ARGS __global const T* restrict src
#define TAKEN(r) LOAD_T(s, AT(r))
#endif
#define PART 512
#if GROUP > 1
#define LANES 1
#else
#define LANES 8
#endif
#include "post.cl"
#include "joins.cl"

#ifdef SHIFTED
#define VALUE(r) exp((ACC)TAKEN(r) - shift)
#else
#define VALUE(r) TAKEN(r)
#endif
#define TAKE(sum, r)          \
  {                           \
    const ACC x = VALUE(r);   \
    const ACC e = ELEMENT(x); \
    sum = JOIN(sum, e);       \
  }

__kernel void reduce(SOURCE_ARGS, __global R* dst SIZES POST_ARGS) {
#if GROUP > 1
  __local ACC part[GROUP];
  const int o = get_group_id(0), lane = get_local_id(0);
#else
  const int o = get_global_id(0), lane = 0;
  if (o >= SIZE) return;
#endif
#ifdef COMPUTED
  const int base = BASE(o);
#else
  __global const T* s = src + BASE(o);
#endif
  ACC acc = START;
#ifdef SHIFTED
  ACC top = -INFINITY;
  for (int r = lane; r < COUNT; r += GROUP) {
    const ACC x = TAKEN(r);
    top = LARGER(top, x);
  }
  COLLECT(top, LARGER)
  const ACC shift = isinf(top) ? (ACC)0 : top;
#endif
  // In two levels: a single sum of 250,000 float32 numbers is off by 1e-5, as much as its last terms are rounded.
  for (int first = lane; first < COUNT; first += GROUP * PART) {
    const int end = COUNT - first > GROUP * PART ? first + GROUP * PART : COUNT;
    ACC sum = START;
    int r = first;
#if LANES > 1
    // Several joins of a work item are under way at once.
    if (end - first >= 2 * LANES) {
      ACC joins[LANES];
      for (int j = 0; j < LANES; ++j) joins[j] = START;
      for (; r + LANES <= end; r += LANES)
        for (int j = 0; j < LANES; ++j) TAKE(joins[j], r + j)
      for (int j = 0; j < LANES; ++j) sum = JOIN(sum, joins[j]);
    }
#endif
    for (; r < end; r += GROUP) TAKE(sum, r)
    acc = JOIN(acc, sum);
    if (COUNT - first <= GROUP * PART) break;  // before the next step leaves int
  }
  COLLECT(acc, JOIN)
#ifdef SHIFTED
  const ACC value = log(acc) + shift;
#else
  const ACC value = END(acc);
#endif
  if (lane == 0) STORE_R(dst, o, POST(value, o));
}
