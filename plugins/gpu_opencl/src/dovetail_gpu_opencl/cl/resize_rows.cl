// dst[a][z][y][x][b] = post(sum of weights * src over the taps of z, y and x), as resize.cl, for CPUs.
//
// A work item computes the elements of one y. NDRange: (OY, OZ, OUTER), local size 1.
//
// Layout: src is [OUTER][IZ][IY][IX][INNER], dst [OUTER][OZ][OY][OX][INNER]; index and wei have TZ, TY, TX entries for each
// output element of an axis, for z, then y, then x. A first entry of -1 marks an element outside: it becomes fill[0].
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
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
#include "post.cl"

// Neighbours for which a work item looks up places and weights once, so that a compiler may use vectors.
#define LANES 8

// The element b of the output column x: `first` are the places of the first element of each row of the source, `share` their
// weights.
#define ELEMENT(x, b)                                                                                                   \
  ACC acc = 0;                                                                                                          \
  for (int i = 0; i < TZ; ++i)                                                                                          \
    for (int j = 0; j < TY; ++j) {                                                                                      \
      ACC part = 0;                                                                                                     \
      for (int k = 0; k < TX; ++k)                                                                                      \
        part += shares[(x) * TX + k] * (ACC)LOAD_T(src, (row(index, i, j) + max(places[(x) * TX + k], 0)) * INNER + b); \
      acc += wei[z0 + i] * wei[y0 + j] * part;                                                                          \
    }

__kernel void resize_rows(__global const T* restrict src, __global const int* restrict index, __global const ACC* restrict wei,
                          __global const ACC* restrict fill, __global T* dst SIZES POST_ARGS) {
  const int oy = get_global_id(0), oz = get_global_id(1), a = get_global_id(2);
  const int z0 = oz * TZ, y0 = OZ * TZ + oy * TY, x0 = OZ * TZ + OY * TY, o0 = ((a * OZ + oz) * OY + oy) * OX * INNER;
#define row(index, i, j) (((a * IZ + max(index[z0 + i], 0)) * IY + max(index[y0 + j], 0)) * IX)
  const bool outside = index[z0] < 0 || index[y0] < 0;
  __global const int* places = index + x0;
  __global const ACC* shares = wei + x0;
  if (INNER == 1) {
    for (int x = 0; x < OX; ++x) {
      ELEMENT(x, 0)
      STORE_T(dst, o0 + x, POST(outside || places[x * TX] < 0 ? fill[0] : acc, o0 + x));
    }
  } else {
    for (int x = 0; x < OX; ++x) {
      const bool filled = outside || places[x * TX] < 0;
      int b = 0;
      for (; b + LANES <= INNER; b += LANES) {
        ACC acc[LANES], part[LANES];
        for (int l = 0; l < LANES; ++l) acc[l] = 0;
        for (int i = 0; i < TZ; ++i)
          for (int j = 0; j < TY; ++j) {
            const ACC share = wei[z0 + i] * wei[y0 + j];
            for (int l = 0; l < LANES; ++l) part[l] = 0;
            for (int k = 0; k < TX; ++k) {
              const ACC s = shares[x * TX + k];
              const int at = (row(index, i, j) + max(places[x * TX + k], 0)) * INNER + b;
              for (int l = 0; l < LANES; ++l) part[l] += s * (ACC)LOAD_T(src, at + l);
            }
            for (int l = 0; l < LANES; ++l) acc[l] += share * part[l];
          }
        const int o = o0 + x * INNER + b;
        for (int l = 0; l < LANES; ++l) STORE_T(dst, o + l, POST(filled ? fill[0] : acc[l], o + l));
      }
      for (; b < INNER; ++b) {
        ELEMENT(x, b)
        const int o = o0 + x * INNER + b;
        STORE_T(dst, o, POST(filled ? fill[0] : acc, o));
      }
    }
  }
}
