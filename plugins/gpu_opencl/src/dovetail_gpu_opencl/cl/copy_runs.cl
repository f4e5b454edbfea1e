// dst[DST(o) + i] = src[SRC(o) + i] for o < SIZE and i < RUN: moves runs of elements between two strided places, for CPUs.
//
// A work item moves up to CHUNK elements of a run. NDRange: (SIZE, rounded up to the local size; ceil(RUN / CHUNK)).
//
// SRC(o) and DST(o) are expressions of the number o of a run, in elements, and of the arguments SIZES, of which SIZE and RUN are
// two.
//
// Tunables: the local size; CHUNK.
#ifndef T
#define T uint
#define SIZE 1
#define RUN 1
#define SRC(o) (o)
#define DST(o) (o)
#define SIZES
#endif
#ifndef CHUNK
#define CHUNK 4096
#endif

__kernel void copy_runs(__global const T* restrict src, __global T* restrict dst SIZES) {
  const int o = get_global_id(0), first = get_global_id(1) * CHUNK, count = min(CHUNK, RUN - first);
  if (o >= SIZE) return;
  src += SRC(o) + first;
  dst += DST(o) + first;
  for (int i = 0; i < count; ++i) dst[i] = src[i];
}
