// dst[a][z][y][x][b] = post(sum of weights * src over the taps of z, y and x): interpolation along up to three axes.
//
// A work item computes EACH elements. NDRange: (OUTER * OZ * OY * OX * INNER, rounded up to the local size).
//
// Layout: src is [OUTER][IZ][IY][IX][INNER][EACH], dst [OUTER][OZ][OY][OX][INNER][EACH]; index and wei have TZ, TY, TX entries
// for each output element of an axis, for z, then y, then x. A first entry of -1 marks an element outside: it becomes fill[0].
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define EACH 1
#define OUTER 1
#define IZ 1
#define IY 1
#define IX 1
#define TZ 1
#define TY 1
#define TX 1
#define OZ INNER
#define OY INNER
#define OX INNER
#define SIZES , const int INNER, const uint INNER_factor, const int INNER_shift
#endif
#include "quotients.cl"
#include "post.cl"

__kernel void resize(__global const T* restrict src, __global const int* restrict index, __global const ACC* restrict wei,
                     __global const ACC* restrict fill, __global T* dst SIZES POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= OUTER * OZ * OY * OX * INNER) return;
  const int xs = QUOTIENT(o, INNER), ys = QUOTIENT(xs, OX), zs = QUOTIENT(ys, OY), a = QUOTIENT(zs, OZ), b = o - xs * INNER;
  const int z0 = (zs - a * OZ) * TZ, y0 = OZ * TZ + (ys - zs * OY) * TY, x0 = OZ * TZ + OY * TY + (xs - ys * OX) * TX;
  ACC acc[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) acc[e] = 0;
  for (int i = z0; i < z0 + TZ; ++i)
    for (int j = y0; j < y0 + TY; ++j) {
      const int row = ((a * IZ + max(index[i], 0)) * IY + max(index[j], 0)) * IX;
      ACC part[EACH];
#pragma unroll
      for (int e = 0; e < EACH; ++e) part[e] = 0;
      for (int k = x0; k < x0 + TX; ++k) {
        const int at = ((row + max(index[k], 0)) * INNER + b) * EACH;
#pragma unroll
        for (int e = 0; e < EACH; ++e) part[e] += wei[k] * (ACC)LOAD_T(src, at + e);
      }
#pragma unroll
      for (int e = 0; e < EACH; ++e) acc[e] += wei[i] * wei[j] * part[e];
    }
  const bool outside = index[z0] < 0 || index[y0] < 0 || index[x0] < 0;
#pragma unroll
  for (int e = 0; e < EACH; ++e) STORE_T(dst, o * EACH + e, POST(outside ? fill[0] : acc[e], o * EACH + e));
}
