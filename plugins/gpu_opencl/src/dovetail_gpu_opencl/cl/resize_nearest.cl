// dst[a][z][y][x][b] = src[a][index z][index y][index x][b]: elements picked along up to three axes, in words of 1 to 16 bytes.
//
// A work item moves one element. NDRange: (OUTER * OZ * OY * OX * INNER, rounded up to the local size).
//
// Layout: index has the input element of each output element, for z, then y, then x; -1 where fill[0] is wanted.
// src is [OUTER][IZ][IY][IX][INNER], dst [OUTER][OZ][OY][OX][INNER]; TZ, TY, TX are 1.
//
// Tunables: the local size.
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
#include "quotients.cl"

__kernel void resize_nearest(__global const T* restrict src, __global const int* restrict index, __global const T* restrict fill,
                             __global T* restrict dst SIZES) {
  const int o = get_global_id(0);
  if (o >= OUTER * OZ * OY * OX * INNER) return;
  const int xs = QUOTIENT(o, INNER), ys = QUOTIENT(xs, OX), zs = QUOTIENT(ys, OY), a = QUOTIENT(zs, OZ), b = o - xs * INNER;
  const int x = index[OZ + OY + xs - ys * OX], y = index[OZ + ys - zs * OY], z = index[zs - a * OZ];
  T value = fill[0];
  if (z >= 0 && y >= 0 && x >= 0) value = src[(((a * IZ + z) * IY + y) * IX + x) * INNER + b];
  dst[o] = value;
}
