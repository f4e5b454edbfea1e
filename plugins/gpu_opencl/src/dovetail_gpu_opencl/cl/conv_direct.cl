// Convolution in up to three dimensions, any groups: dst[n][m][z][y][x] = post(bia[m] + sum over c, kz, ky, kx of src * wei).
//
// A work item computes one output element. For what the faster kernels refuse. Elements outside the input are zeros that are
// multiplied: an infinite weight gives NaN there.
// NDRange: (output elements, rounded up to the local size); SIZE is the number of output elements.
//
// Layout: src and dst dense NCDHW (missing axes of size 1); wei dense [M][C][KD][KH][KW], C the input channels of a group; bia
// [M].
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define SIZE 1
#define GROUPS 1
#define C 1
#define M 1
#endif
#include "windows.cl"
#include "post.cl"
#define MG (M / GROUPS)

__kernel void conv_direct(__global const T* restrict src, __global const T* restrict wei BIAS_ARG, __global T* dst POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= SIZE) return;
  const int ox = o % OW, oy = o / OW % OH, oz = o / (OW * OH) % OD, m = o / (OW * OH * OD) % M, n = o / (OW * OH * OD * M);
  const int x0 = ox * STRIDE_X - PAD_X, y0 = oy * STRIDE_Y - PAD_Y, z0 = oz * STRIDE_Z - PAD_Z;
  __global const T* s = src + (n * GROUPS + m / MG) * C * (ID * IH * IW);
  __global const T* w = wei + m * (C * KD * KH * KW);
  ACC acc = 0;
  for (int c = 0; c < C; ++c, s += ID * IH * IW)
    for (int kz = 0; kz < KD; ++kz)
      for (int ky = 0; ky < KH; ++ky)
        for (int kx = 0; kx < KW; ++kx, ++w) {
          const int z = z0 + kz * DILATION_Z, y = y0 + ky * DILATION_Y, x = x0 + kx * DILATION_X;
          const bool inside = z >= 0 && z < ID && y >= 0 && y < IH && x >= 0 && x < IW;
          const ACC value = inside ? (ACC)LOAD_T(s, (z * IH + y) * IW + x) : (ACC)0;
          acc += value * (ACC)LOAD_T(w, 0);
        }
#ifdef HAS_BIAS
  acc += LOAD_T(bia, m);
#endif
  STORE_T(dst, o, POST(acc, o));
}
