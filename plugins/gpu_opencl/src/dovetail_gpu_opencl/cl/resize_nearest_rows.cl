// dst[a][z][y][x][b] = src[a][index z][index y][index x][b], as resize_nearest.cl, for CPUs.
//
// A work item moves the elements of one y. NDRange: (OY, OZ, OUTER), local size 1.
//
// Layout: index has the input element of each output element, for z, then y, then x; -1 where fill[0] is wanted. TZ, TY, TX are
// 1.
#ifndef T
#define T uint
#define OUTER 1
#define IZ 1
#define IY 1
#define IX 1
#define OZ INNER
#define OY INNER
#define OX INNER
#define SIZES , const int INNER, const uint INNER_factor, const int INNER_shift
#endif

__kernel void resize_nearest_rows(__global const T* restrict src, __global const int* restrict index,
                                  __global const T* restrict fill, __global T* restrict dst SIZES) {
  const int row = get_global_id(0), slice = get_global_id(1), a = get_global_id(2);
  const int z = index[slice], y = index[OZ + row], outside = z < 0 || y < 0;
  const T value = fill[0];
  __global const int* places = index + OZ + OY;
  __global const T* from = src + (outside ? 0 : ((a * IZ + z) * IY + y) * IX * INNER);
  __global T* to = dst + ((a * OZ + slice) * OY + row) * OX * INNER;
  if (outside) {
    for (int i = 0; i < OX * INNER; ++i) to[i] = value;
  } else if (INNER == 1) {
    for (int x = 0; x < OX; ++x) to[x] = places[x] < 0 ? value : from[places[x]];
  } else {
    for (int x = 0; x < OX; ++x, to += INNER)
      for (int b = 0; b < INNER; ++b) to[b] = places[x] < 0 ? value : from[places[x] * INNER + b];
  }
}
