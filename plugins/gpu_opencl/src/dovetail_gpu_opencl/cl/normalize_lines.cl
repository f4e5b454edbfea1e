// dst = post((src - mean) * factor * scale + bias) along lines; the statistic is MOMENTS: factor = 1 / sqrt(variance + epsilon),
// the variance being that of the centred elements (two passes); RMS: no mean, factor = 1 / sqrt(mean of squares + epsilon);
// L1, L2: no mean, factor = 1 / norm, the result 0 where the norm is 0.
//
// A work item computes a line, or with GROUP > 1 a work group does, over local memory.
// NDRange: (lines, rounded up to the local size), or (lines * GROUP) with local size GROUP, a power of two.
//
// With PARTED each line is shared by `parts` work groups, for few long lines: line_moments writes the mean of each part and the
// sum of the squares around it to moments [lines][parts][2], which normalize_lines joins. NDRange of both: (lines * parts *
// GROUP); inner is 1, the statistic MOMENTS.
//
// Layout: element i of a line l is at l / inner * (size * inner) + l % inner + i * inner; its scale and bias (HAS_SCALE,
// HAS_BIAS) at l % period * step + i / span, or where SCALE_AT and BIAS_AT say. means and factors [lines] may be NULL.
//
// With DENSE inner is 1.
//
// With GROUP_CHANNELS of CHANNELS a line is a group of channels that are innermost: its elements are those of all pixels.
//
// Tunables: GROUP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define P float
#define LOAD_P(p, i) ((p)[i])
#define R float
#define STORE_R(p, i, v) ((p)[i] = (v))
#define ACC float
#define MOMENTS
#define HAS_SCALE
#define HAS_BIAS
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifdef GROUP_CHANNELS
#define BASE(l) ((l) / period * (size / GROUP_CHANNELS * CHANNELS) + (l) % period * GROUP_CHANNELS)
#define STEP(i) ((i) / GROUP_CHANNELS * CHANNELS + (i) % GROUP_CHANNELS)
#define SCALE_AT(l, i, o) ((l) % period * GROUP_CHANNELS + (i) % GROUP_CHANNELS)
#define BIAS_AT(l, i, o) SCALE_AT(l, i, o)
#elif defined(DENSE)
#define BASE(l) ((l) * size)
#define STEP(i) (i)
#else
#define BASE(l) ((l) / inner * (size * inner) + (l) % inner)
#define STEP(i) ((i) * inner)
#endif
#if GROUP == 1 && !defined(SCALE_AT) && !defined(BIAS_AT)
#define BY_SPANS
#endif
#ifndef SCALE_AT
#define SCALE_AT(l, i, o) ((l) % period * step + (i) / span)
#endif
#ifndef BIAS_AT
#define BIAS_AT(l, i, o) ((l) % period * step + (i) / span)
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif
#ifdef HAS_SCALE
#define SCALE_ARG , __global const P* restrict scale
#else
#define SCALE_ARG
#endif
#ifdef HAS_BIAS
#define BIAS_ARG , __global const P* restrict bias
#else
#define BIAS_ARG
#endif
#include "joins.cl"
#ifdef L1
#define MEASURE(x) fabs(x)
#else
static ACC squared(const ACC x) { return x * x; }
#define MEASURE(x) squared(x)
#endif

// The sum of TERM(i) for all i below size by this work item, or by its group. A work item has LANES sums, which are under way at
// once, and lose less than one.
#if GROUP > 1
#define ADD_UP(acc, TERM)                                     \
  for (int i = lane; i < size; i += GROUP) acc += TERM(i);    \
  COLLECT(acc, PLUS)
#else
#define LANES 8
#define ADD_UP(acc, TERM)                                     \
  {                                                           \
    ACC sums[LANES] = {0, 0, 0, 0, 0, 0, 0, 0};               \
    int i = 0;                                                \
    for (; i + LANES <= size; i += LANES)                     \
      for (int j = 0; j < LANES; ++j) sums[j] += TERM(i + j); \
    for (; i < size; ++i) sums[0] += TERM(i);                 \
    for (int j = 0; j < LANES; ++j) acc += sums[j];           \
  }
#endif
#define VALUE(i) ((ACC)LOAD_T(src, base + STEP(i)))
#define MEASURED(i) MEASURE(VALUE(i) - mean)

#ifdef PARTED
#define MOMENTS_ARG , __global const ACC* restrict moments, const int parts

__kernel void line_moments(__global const T* restrict src, __global ACC* moments, const int size, const int parts,
                           const int period) {
  __local ACC part[GROUP];
  const int inner = 1;
  const int lane = get_local_id(0), own = get_group_id(0), line = own / parts, share = (size + parts - 1) / parts;
  const int first = own % parts * share, end = min(size, first + share), base = BASE(line);
  ACC mean = 0, measure = 0;
  for (int i = first + lane; i < end; i += GROUP) mean += LOAD_T(src, base + STEP(i));
  COLLECT(mean, PLUS)
  mean /= max(1, end - first);
  for (int i = first + lane; i < end; i += GROUP) {
    const ACC x = (ACC)LOAD_T(src, base + STEP(i)) - mean;
    measure += x * x;
  }
  COLLECT(measure, PLUS)
  if (lane) return;
  moments[2 * own] = mean;
  moments[2 * own + 1] = measure;
}
#else
#define MOMENTS_ARG
#endif

__kernel void normalize_lines(__global const T* restrict src SCALE_ARG BIAS_ARG, __global R* dst, __global float* means,
                        __global float* factors, const int lines, const int size, const int inner, const int period,
                        const int step, const int span, const ACC epsilon MOMENTS_ARG POST_ARGS) {
#ifdef PARTED
  __local ACC part[GROUP];
  const int line = get_group_id(0) / parts, lane = get_local_id(0), share = (size + parts - 1) / parts;
  const int first = get_group_id(0) % parts * share, end = min(size, first + share);
#elif GROUP > 1
  __local ACC part[GROUP];
  const int line = get_group_id(0), lane = get_local_id(0);
#else
  const int line = get_global_id(0), lane = 0;
  if (line >= lines) return;
#endif
#ifndef PARTED
  const int first = 0, end = size;
#endif
  const int base = BASE(line);
  ACC mean = 0, measure = 0;
#ifdef PARTED
  for (int p = lane; p < parts; p += GROUP) mean += moments[2 * (line * parts + p)] * max(0, min(share, size - p * share));
  COLLECT(mean, PLUS)
  mean /= size;
  for (int p = lane; p < parts; p += GROUP) {
    const ACC x = moments[2 * (line * parts + p)] - mean;
    measure += moments[2 * (line * parts + p) + 1] + x * x * max(0, min(share, size - p * share));
  }
  COLLECT(measure, PLUS)
#else
#ifdef MOMENTS
  ADD_UP(mean, VALUE)
  mean /= size;
#endif
  ADD_UP(measure, MEASURED)
#endif
#if defined(MOMENTS) || defined(RMS)
  const ACC factor = (ACC)1 / sqrt(measure / size + epsilon);
#elif defined(L2)
  measure = sqrt(measure);
#endif
#if defined(MOMENTS) || defined(RMS)
#define NORMALIZED(x) ((x) * factor)
#else
#define NORMALIZED(x) (measure == 0 ? (ACC)0 : (x) / measure)
#endif
#ifdef HAS_SCALE
#define SCALED(y, i, o) ((y) * LOAD_P(scale, SCALE_AT(line, i, o)))
#else
#define SCALED(y, i, o) (y)
#endif
#ifdef HAS_BIAS
#define BIASED(y, i, o) ((y) + LOAD_P(bias, BIAS_AT(line, i, o)))
#else
#define BIASED(y, i, o) (y)
#endif
#ifdef BY_SPANS
  for (int from = 0; from < size; from += span) {
    const int at = line % period * step + from / span, to = min(size - from, span) + from;
#undef SCALE_AT
#undef BIAS_AT
#define SCALE_AT(l, i, o) at
#define BIAS_AT(l, i, o) at
    for (int i = from; i < to; ++i) {
#else
  {
    for (int i = first + lane; i < end; i += GROUP) {
#endif
      const int o = base + STEP(i);
      const ACC y = NORMALIZED(VALUE(i) - mean);
      const ACC z = SCALED(y, i, o);
      STORE_R(dst, o, POST(BIASED(z, i, o), o));
    }
  }
#if defined(MOMENTS) || defined(RMS)
  if (lane == 0 && first == 0 && means) means[line] = mean;
  if (lane == 0 && first == 0 && factors) factors[line] = factor;
#endif
}
