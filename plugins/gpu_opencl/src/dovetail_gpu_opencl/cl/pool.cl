// Pooling in up to three dimensions: dst[n][c] = post(maximum or mean of src[n][c] over each window).
//
// A work item computes one output element. NDRange: (output elements, rounded up to the local size).
//
// Layout: src and dst dense NCDHW (missing axes of size 1); PLANES = N * C.
//
// MAXIMUM: the largest element, NaN wins. POWER: the POWER-th root of the sum of the magnitudes to that power. Otherwise the mean: over elements inside the input, or with COUNT_PADS over those inside
// the input and its pads (COUNT_D, COUNT_H, COUNT_W: the end of the padded input).
//
// INDICES: the place of each maximum in src is written too, -1 for a window outside; COLUMNS: counted with the first spatial axis fastest.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define MAXIMUM
#define PLANES 1
#define LOWEST -INFINITY
#endif
#include "windows.cl"
#include "post.cl"

#ifdef INDICES
#define INDEX_ARG , __global long* restrict indices
// The first of equal elements counts.
#define BETTER(v, acc) ((v) > (acc) || ((v) != (v) && (acc) == (acc)) || place < 0)
#else
#define INDEX_ARG
#define BETTER(v, acc) ((v) > (acc) || (v) != (v))
#endif

__kernel void pool(__global const T* restrict src, __global T* dst INDEX_ARG POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= PLANES * OD * OH * OW) return;
  const int ox = o % OW, oy = o / OW % OH, oz = o / (OW * OH) % OD, plane = o / (OW * OH * OD);
  const int x0 = ox * STRIDE_X - PAD_X, y0 = oy * STRIDE_Y - PAD_Y, z0 = oz * STRIDE_Z - PAD_Z;
  __global const T* s = src + plane * (ID * IH * IW);
#ifdef MAXIMUM
  ACC acc = LOWEST;
#else
  ACC acc = 0;
#endif
  int count = 0;
#ifdef INDICES
  int place = -1;
#endif
  for (int kz = 0; kz < KD; ++kz)
    for (int ky = 0; ky < KH; ++ky)
      for (int kx = 0; kx < KW; ++kx) {
        const int z = z0 + kz * DILATION_Z, y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
        const int inside = z >= 0 && z < ID && y >= 0 && y < IH && x >= 0 && x < IW;
#ifdef COUNT_PADS
        count += z < COUNT_D && y < COUNT_H && x < COUNT_W;
#else
        count += inside;
#endif
        if (inside) {
          const ACC v = LOAD_T(s, (z * IH + y) * IW + x);
#ifdef MAXIMUM
#ifdef INDICES
#ifdef COLUMNS
          const int at = (x * IH + y) * ID + z;
#else
          const int at = (z * IH + y) * IW + x;
#endif
          if (BETTER(v, acc)) {
            acc = v;
            place = at;
          }
#else
          acc = BETTER(v, acc) ? v : acc;
#endif
#else
#ifdef POWER
          acc += pown(fabs(v), POWER);
#else
          acc += v;
#endif
#endif
        }
      }
#ifdef INDICES
  indices[o] = place < 0 ? -1 : place + (long)plane * (ID * IH * IW);
#endif
#ifdef MAXIMUM
  STORE_T(dst, o, POST(acc, o));
#elif defined(POWER)
  STORE_T(dst, o, POST(pow(acc, (ACC)1 / POWER), o));
#else
  STORE_T(dst, o, POST(acc / (ACC)count, o));
#endif
}
