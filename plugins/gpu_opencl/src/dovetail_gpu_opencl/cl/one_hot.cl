// dst[a][c][b] = values[index[a][b] == c]: 0 is off, 1 is on. Negative indices count from the end.
//
// A work item writes one word of 1 to 16 bytes. NDRange: (size, rounded up to the local size).
//
// Layout: index [size / (depth * inner)][inner], dst [..][depth][inner]. WHOLE(x) makes an index a long.
//
// Tunables: the local size.
#ifndef T
#define T uint
#define I long
#define LOAD_I(p, i) ((p)[i])
#define WHOLE(x) (x)
#endif

__kernel void one_hot(__global const I* restrict index, __global const T* restrict values, __global T* restrict dst,
                      const int size, const int depth, const int inner) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int c = o / inner % depth;
  const long at = WHOLE(LOAD_I(index, o / (inner * depth) * inner + o % inner));
  dst[o] = values[(at < 0 ? at + depth : at) == c];
}
