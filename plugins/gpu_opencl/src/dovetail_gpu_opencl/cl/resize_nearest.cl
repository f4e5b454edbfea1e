// dst[a][z][y][x][b] = src[a][index z][index y][index x][b]: elements picked along up to three axes, in words of 1 to 16 bytes.
//
// A work item moves one element. NDRange: (outer * oz * oy * ox * inner, rounded up to the local size).
//
// Layout: index has the input element of each output element, for z, then y, then x; -1 where fill[0] is wanted.
// tz, ty, tx are 1.
//
// Tunables: the local size.
#ifndef T
#define T uint
#endif

__kernel void resize_nearest(__global const T* restrict src, __global const int* restrict index, __global const T* restrict fill,
                             __global T* restrict dst, const int outer, const int iz, const int iy, const int ix, const int oz,
                             const int oy, const int ox, const int inner, const int tz, const int ty, const int tx) {
  const int o = get_global_id(0);
  if (o >= outer * oz * oy * ox * inner) return;
  const int b = o % inner, x = index[oz + oy + o / inner % ox], y = index[oz + o / (inner * ox) % oy];
  const int z = index[o / (inner * ox * oy) % oz], a = o / (inner * ox * oy * oz);
  T value = fill[0];
  if (z >= 0 && y >= 0 && x >= 0) value = src[(((a * iz + z) * iy + y) * ix + x) * inner + b];
  dst[o] = value;
}
