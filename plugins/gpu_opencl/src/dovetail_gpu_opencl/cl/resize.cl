// dst[a][z][y][x][b] = post(sum of weights * src over the taps of z, y and x): interpolation along up to three axes.
//
// A work item computes one element. NDRange: (outer * oz * oy * ox * inner, rounded up to the local size).
//
// Layout: index and wei have tz, ty, tx entries for each output element of an axis, for z, then y, then x. A first entry of -1
// marks an element outside: it becomes fill[0].
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#endif
#include "post.cl"

__kernel void resize(__global const T* restrict src, __global const int* restrict index, __global const ACC* restrict wei,
                     __global const ACC* restrict fill, __global T* dst, const int outer, const int iz, const int iy,
                     const int ix, const int oz, const int oy, const int ox, const int inner, const int tz, const int ty,
                     const int tx POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= outer * oz * oy * ox * inner) return;
  const int b = o % inner, a = o / (inner * ox * oy * oz);
  const int z0 = o / (inner * ox * oy) % oz * tz, y0 = oz * tz + o / (inner * ox) % oy * ty;
  const int x0 = oz * tz + oy * ty + o / inner % ox * tx;
  ACC acc = 0;
  for (int i = z0; i < z0 + tz; ++i)
    for (int j = y0; j < y0 + ty; ++j) {
      const int row = ((a * iz + max(index[i], 0)) * iy + max(index[j], 0)) * ix;
      ACC part = 0;
      for (int k = x0; k < x0 + tx; ++k) part += wei[k] * (ACC)LOAD_T(src, (row + max(index[k], 0)) * inner + b);
      acc += wei[i] * wei[j] * part;
    }
  if (index[z0] < 0 || index[y0] < 0 || index[x0] < 0) acc = fill[0];
  STORE_T(dst, o, POST(acc, o));
}
