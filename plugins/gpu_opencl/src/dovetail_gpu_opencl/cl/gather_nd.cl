// dst[batch][n][i] = src[batch][index[batch][n][0]]...[index[batch][n][depth - 1]][i]: slices at coordinates, in words of 1 to 16
// bytes.
//
// A work item moves one word. NDRange: (size, rounded up to the local size).
//
// Layout: `inner` words a slice, `count` slices a batch, `step` words of src a batch; shape has the bounds of the `depth`
// coordinates, then their strides in words. Negative indices count from the end. For one out of range, 0 is taken and
// faults[fault] set to 1.
//
// Tunables: the local size.
#ifndef T
#define T uint
#endif

__kernel void gather_nd(__global const T* restrict src, __global const long* restrict index, __global const int* restrict shape,
                        __global T* restrict dst, const int size, const int depth, const int inner, const int count,
                        const int step, __global int* faults, const int fault) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int slice = o / inner;
  int at = slice / count * step + o % inner;
  for (int d = 0; d < depth; ++d) {
    long i = index[slice * depth + d];
    if (i < -shape[d] || i >= shape[d]) {
      faults[fault] = 1;
      i = 0;
    }
    at += (int)(i < 0 ? i + shape[d] : i) * shape[depth + d];
  }
  dst[o] = src[at];
}
