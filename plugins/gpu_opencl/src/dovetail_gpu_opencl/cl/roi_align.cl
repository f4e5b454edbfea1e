// dst[r][c][y][x] = mean, or with MAX the largest, of the bilinear samples in a bin of box r of the image batch[r] of src.
//
// A work item computes one bin. NDRange: (elements of dst, rounded up to the local size).
//
// Layout: src dense [N][C][H][W]; rois dense [regions][4]: x1, y1, x2, y2 in elements after SCALE; dst dense [regions][C][OH][OW].
// RATIO: samples of a bin along an axis, 0: one for each element that it covers. SHIFT is taken off the boxes; without SHIFT they
// have at least one element. MAX takes the largest weighted neighbour, as the operator is defined. A box that is not finite, or a
// batch that is not there, sets faults[fault] to 1.
//
// Tunables: the local size.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define RATIO 0
#define SCALE 1.0f
#define SHIFT 0.0f
#endif
#pragma OPENCL FP_CONTRACT OFF

// The neighbours of a sample and the weight of the second; false where it is outside.
static bool neighbours(const ACC given, const int size, int* low, int* high, ACC* part) {
  const ACC at = clamp(given, (ACC)0, (ACC)(size - 1));
  *low = (int)floor(at);
  *high = min(*low + 1, size - 1);
  *part = at - *low;
  return given >= -1 && given <= size;
}

__kernel void roi_align(__global const T* restrict src, __global const T* restrict rois, __global const long* restrict batch,
                        __global T* restrict dst, const int size, const int N, const int C, const int H, const int W, const int OH,
                        const int OW, __global int* faults, const int fault) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int ox = o % OW, oy = o / OW % OH, c = o / (OW * OH) % C, r = o / (OW * OH * C);
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
  const int nx = RATIO ? RATIO : (int)fmax(ceil(bin_x), (ACC)0), ny = RATIO ? RATIO : (int)fmax(ceil(bin_y), (ACC)0);
  __global const T* plane = src + ((int)batch[r] * C + c) * (H * W);
  ACC sum = 0, most = -INFINITY;
  for (int iy = 0; iy < ny; ++iy) {
    int y0, y1;
    ACC fy;
    const bool in_y = neighbours(box[1] + (oy * ny + iy + (ACC)0.5) * (bin_y / ny), H, &y0, &y1, &fy);
    for (int ix = 0; ix < nx; ++ix) {
      int x0, x1;
      ACC fx;
      const bool inside = neighbours(box[0] + (ox * nx + ix + (ACC)0.5) * (bin_x / nx), W, &x0, &x1, &fx) && in_y;
      const ACC one = inside ? 1 : 0;
      const ACC a = one * (1 - fy) * (1 - fx) * LOAD_T(plane, y0 * W + x0), b = one * (1 - fy) * fx * LOAD_T(plane, y0 * W + x1);
      const ACC d = one * fy * (1 - fx) * LOAD_T(plane, y1 * W + x0), e = one * fy * fx * LOAD_T(plane, y1 * W + x1);
      sum += a + b + d + e;
      most = fmax(most, fmax(fmax(a, b), fmax(d, e)));
    }
  }
  const int count = nx * ny;
#ifdef MAX
  STORE_T(dst, o, count ? most : (ACC)0);
#else
  STORE_T(dst, o, count ? sum / count : (ACC)0);
#endif
}
