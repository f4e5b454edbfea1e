// dst[DST(o)] = src[SRC(o)] for o < SIZE: moves words of 1 to 16 bytes between two strided places.
//
// NDRange: (SIZE, rounded up to the local size).
//
// SRC(o) and DST(o) are expressions of the flat index o, in words, and of the arguments SIZES, of which SIZE is one.
//
// With COMPUTED words are numbers, to which post-ops are applied; then dst is dense.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define SIZE 1
#define SRC(o) (o)
#define DST(o) (o)
#define SIZES
#endif
#include "post.cl"

#ifdef COMPUTED
#define MOVED(o) STORE_T(dst, DST(o), POST(LOAD_T(src, SRC(o)), o))
#else
#define MOVED(o) dst[DST(o)] = src[SRC(o)]
#endif

__kernel void copy(__global const T* restrict src, __global T* dst SIZES POST_ARGS) {
  const int o = get_global_id(0);
  if (o < SIZE) MOVED(o);
}
