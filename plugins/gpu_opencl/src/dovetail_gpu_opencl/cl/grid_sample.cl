// dst[n][c][p] = src[n][c] at the place p of grid[n], interpolated between TAPS elements along each axis: 1 (the nearest), 2
// (linear) or 4 (cubic convolution of Keys, 1981, with a = -0.75).
//
// A work item computes all channels of one place. NDRange: (N * P, rounded up to the local size).
//
// Layout: src dense [N][C][D][H][W] (missing axes of size 1), grid dense [N][P][AXES], x first, from -1 to 1; dst dense
// [N][C][P].
// ALIGN: -1 and 1 are the centres of the first and last element, else their outer edges. PADDING is the value outside: 0 zeros,
// 1 the border, 2 reflections.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define G float
#define LOAD_G(p, i) ((p)[i])
#define ACC float
#define REAL float
#define AXES 2
#define TAPS 2
#define PADDING 0
#endif
#pragma OPENCL FP_CONTRACT OFF

// Places brought back into an axis of so many elements.
static REAL brought_back(REAL at, const int size) {
#if PADDING == 1
  return clamp(at, (REAL)0, (REAL)(size - 1));
#elif PADDING == 2
#ifdef ALIGN
  const REAL low = 0, span = size - 1;
#else
  const REAL low = (REAL)-0.5, span = size;
#endif
  if (span == 0) return 0;
  REAL away = fmod(at - low, 2 * span);
  if (away < 0) away += 2 * span;
  return low + (away > span ? 2 * span - away : away);
#else
  return at;
#endif
}

static REAL cubic(const REAL d) {
  const REAL a = (REAL)-0.75;
  return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// The elements of an axis for a place, and their weights; those outside have the index -1 where there are zeros.
static void taps_of(const REAL given, const int size, int* index, REAL* weight) {
#ifdef ALIGN
  REAL at = (given + 1) / 2 * (size - 1);
  const REAL low = 0, high = size - 1;
#else
  REAL at = ((given + 1) * size - 1) / 2;
  const REAL low = (REAL)-0.5, high = size - (REAL)0.5;
#endif
  at = at != at ? (REAL)-1 : clamp(at, (REAL)-0x1p40f, (REAL)0x1p40f);
#if TAPS == 1
  at = rint(at);
#endif
#if TAPS != 4
  if (at < low || at > high) at = brought_back(at, size);
#endif
  const REAL whole = floor(at), t = at - whole;
#pragma unroll
  for (int i = 0; i < TAPS; ++i) {
    const int step = TAPS == 4 ? i - 1 : i;
    const REAL own = whole + step;
    const bool outside = own < 0 || own > size - 1;
#if TAPS == 1
    weight[i] = 1;
#elif TAPS == 2
    weight[i] = i ? t : 1 - t;
#else
    weight[i] = cubic(fabs(t - step));
#endif
    const REAL back = outside ? brought_back(own, size) : own;
    index[i] = (int)clamp(back, (REAL)0, (REAL)(size - 1));
#if PADDING == 0
    if (outside) index[i] = -1;
#endif
  }
}

__kernel void grid_sample(__global const T* restrict src, __global const G* restrict grid, __global T* restrict dst,
                          const int places, const int N, const int C, const int D, const int H, const int W) {
  const int item = get_global_id(0), n = item / places, p = item % places;
  if (n >= N) return;
  int index[3][TAPS];
  REAL weight[3][TAPS];
  const int sizes[3] = {D, H, W};
  for (int axis = 0; axis < 3; ++axis) {
    if (axis < 3 - AXES) {
      index[axis][0] = 0;
      weight[axis][0] = 1;
    } else {
      taps_of((REAL)LOAD_G(grid, item * AXES + 2 - axis), sizes[axis], index[axis], weight[axis]);
    }
  }
  for (int c = 0; c < C; ++c) {
    const int plane = (n * C + c) * (D * H * W), o = (n * C + c) * places + p;
#if TAPS == 1
    const int at = plane + (index[0][0] * H + index[1][0]) * W + index[2][0];
    const int inside = index[0][0] >= 0 && index[1][0] >= 0 && index[2][0] >= 0;
    STORE_T(dst, o, inside ? LOAD_T(src, at) : 0);
#else
    ACC sum = 0;
    for (int z = 0; z < (AXES > 2 ? TAPS : 1); ++z)
      for (int y = 0; y < (AXES > 1 ? TAPS : 1); ++y)
#pragma unroll
        for (int x = 0; x < TAPS; ++x) {
          if (index[0][z] < 0 || index[1][y] < 0 || index[2][x] < 0) continue;  // not 0 times what is at the border
          const REAL w = weight[0][z] * weight[1][y] * weight[2][x];
          sum += (ACC)LOAD_T(src, plane + (index[0][z] * H + index[1][y]) * W + index[2][x]) * (ACC)w;
        }
    STORE_T(dst, o, sum);
#endif
  }
}
