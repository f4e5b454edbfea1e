// dst[a][z][y][x][b] = src[a][index z][index y][index x][b], as resize_nearest.cl, for CPUs.
//
// A work item moves the elements of one y. NDRange: (oy, oz, outer), local size 1.
//
// Layout: index has the input element of each output element, for z, then y, then x; -1 where fill[0] is wanted. tz, ty, tx are 1.
#ifndef T
#define T uint
#endif

__kernel void resize_nearest_rows(__global const T* restrict src, __global const int* restrict index,
                                  __global const T* restrict fill, __global T* restrict dst, const int outer, const int iz,
                                  const int iy, const int ix, const int oz, const int oy, const int ox, const int inner,
                                  const int tz, const int ty, const int tx) {
  const int row = get_global_id(0), slice = get_global_id(1), a = get_global_id(2);
  const int z = index[slice], y = index[oz + row], outside = z < 0 || y < 0;
  const T value = fill[0];
  __global const int* places = index + oz + oy;
  __global const T* from = src + (outside ? 0 : ((a * iz + z) * iy + y) * ix * inner);
  __global T* to = dst + ((a * oz + slice) * oy + row) * ox * inner;
  if (outside) {
    for (int i = 0; i < ox * inner; ++i) to[i] = value;
  } else if (inner == 1) {
    for (int x = 0; x < ox; ++x) to[x] = places[x] < 0 ? value : from[places[x]];
  } else {
    for (int x = 0; x < ox; ++x, to += inner)
      for (int b = 0; b < inner; ++b) to[b] = places[x] < 0 ? value : from[places[x] * inner + b];
  }
}
