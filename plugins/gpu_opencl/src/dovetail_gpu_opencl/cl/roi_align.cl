// dst[r][c][y][x] = mean, or with MAX the largest, of the bilinear samples in a bin of box r of the image batch[r] of src.
//
// A work item computes one bin of CHANNELS neighbouring channels, whose samples have the same places.
// NDRange: (bins * (C / CHANNELS, rounded up) * regions, rounded up to the local size).
//
// Layout: src dense [N][C][H][W]; rois dense [regions][4]: x1, y1, x2, y2 in elements after SCALE; dst dense
// [regions][C][OH][OW].
// RATIO: samples of a bin along an axis, 0: one for each element that it covers. SHIFT is taken off the boxes; without SHIFT they
// have at least one element. MAX takes the largest weighted neighbour, as the operator is defined. A box that is not finite, or a
// batch that is not there, sets faults[fault] to 1.
//
// Tunables: CHANNELS, the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define RATIO 0
#define SCALE 1.0f
#define SHIFT 0.0f
#define CHANNELS 1
#endif
#pragma OPENCL FP_CONTRACT OFF
#ifdef MAX
#define IS_MAX true
#else
#define IS_MAX false
#endif

// The neighbours of a sample and the weight of the second; false where it is outside.
static bool neighbours(const ACC given, const int size, int* low, int* high, ACC* part) {
  const ACC at = clamp(given, (ACC)0, (ACC)(size - 1));
  *low = (int)floor(at);
  *high = min(*low + 1, size - 1);
  *part = at - *low;
  return given >= -1 && given <= size;
}

static int samples_along(const ACC bin) { return RATIO ? RATIO : (int)clamp(ceil(bin), (ACC)0, (ACC)(1 << 30)); }

// The samples of a bin, numbered from `begin` on, from the first to behind the last that can be inside; all `count` of them where
// they do not advance. A box may reach far beyond the picture.
static int2 samples(const ACC start, const ACC step, const ACC begin, const int count, const int size) {
  if (!(step > 0)) return (int2)(0, count);
  const ACC slack = 2 + (ACC)1e-6 * (fabs(start) / step + begin);  // for rounding
  const ACC first = (-1 - start) / step - begin - slack, last = (size - start) / step - begin + slack;
  return (int2)((int)clamp(first, (ACC)0, (ACC)count), min(count, (int)clamp(last + 1, (ACC)0, (ACC)count)));
}

__kernel void roi_align(__global const T* restrict src, __global const T* restrict rois, __global const long* restrict batch,
                        __global T* restrict dst, const int size, const int N, const int C, const int H, const int W,
                        const int OH, const int OW, __global int* faults, const int fault) {
  const int o = get_global_id(0), bins = OW * OH, blocks = (C + CHANNELS - 1) / CHANNELS;
  if (o >= size) return;
  const int ox = o % OW, oy = o / OW % OH, first = o / bins % blocks * CHANNELS, r = o / (bins * blocks);
  ACC box[4];
  bool good = batch[r] >= 0 && batch[r] < N;
  for (int i = 0; i < 4; ++i) {
    const ACC given = (ACC)LOAD_T(rois, r * 4 + i);
    good = good && isfinite(given);
    box[i] = given * SCALE - SHIFT;
  }
  if (!good) {
    faults[fault] = 1;
    return;
  }
  ACC length_x = box[2] - box[0], length_y = box[3] - box[1];
#ifndef SHIFTED
  length_x = fmax(length_x, (ACC)1);
  length_y = fmax(length_y, (ACC)1);
#endif
  const ACC bin_x = length_x / OW, bin_y = length_y / OH;
  const int nx = samples_along(bin_x), ny = samples_along(bin_y);
  const ACC step_x = bin_x / nx, step_y = bin_y / ny, begin_x = (ACC)ox * nx, begin_y = (ACC)oy * ny;
  const int2 in_x = samples(box[0], step_x, begin_x, nx, W), in_y = samples(box[1], step_y, begin_y, ny, H);
  const bool all_in = in_x.s1 - in_x.s0 == nx && in_y.s1 - in_y.s0 == ny;
  __global const T* planes = src + ((int)batch[r] * C + first) * (H * W);
  ACC found[CHANNELS];
#pragma unroll
  for (int k = 0; k < CHANNELS; ++k) found[k] = IS_MAX && all_in ? -INFINITY : 0;
  for (int iy = in_y.s0; iy < in_y.s1; ++iy) {
    int y0, y1;
    ACC fy;
    const bool is_in_y = neighbours(box[1] + (begin_y + iy + (ACC)0.5) * step_y, H, &y0, &y1, &fy);
    for (int ix = in_x.s0; ix < in_x.s1; ++ix) {
      int x0, x1;
      ACC fx;
      const bool inside = neighbours(box[0] + (begin_x + ix + (ACC)0.5) * step_x, W, &x0, &x1, &fx) && is_in_y;
      const ACC one = inside ? 1 : 0;
      const ACC of_a = one * (1 - fy) * (1 - fx), of_b = one * (1 - fy) * fx, of_d = one * fy * (1 - fx), of_e = one * fy * fx;
#pragma unroll
      for (int k = 0; k < CHANNELS; ++k) {
        __global const T* plane = planes + min(k, C - 1 - first) * (H * W);
        const ACC a = of_a * LOAD_T(plane, y0 * W + x0), b = of_b * LOAD_T(plane, y0 * W + x1);
        const ACC d = of_d * LOAD_T(plane, y1 * W + x0), e = of_e * LOAD_T(plane, y1 * W + x1);
        found[k] = IS_MAX ? fmax(found[k], fmax(fmax(a, b), fmax(d, e))) : found[k] + (a + b + d + e);
      }
    }
  }
  const ACC count = (ACC)nx * ny;
#pragma unroll
  for (int k = 0; k < CHANNELS; ++k)
    if (first + k < C)
      STORE_T(dst, (r * C + first + k) * bins + oy * OW + ox, count > 0 ? (IS_MAX ? found[k] : found[k] / count) : (ACC)0);
}
