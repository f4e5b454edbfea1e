// The discrete Fourier transform of each line, cut or filled with zeros to n elements: dst[o] = sum of src[i] * e^(-2 pi i o /
// n).
//
// A work group computes a line: it keeps the line and the n roots of unity in local memory, and a work item sums one result after
// another. NDRange: (lines * local size).
//
// Layout: element i of a line l is at l / inner * src_outer + l % inner * src_inner + i * src_step, in numbers of PARTS elements:
// the real, or the real and the imaginary part. Results alike, in numbers of two, or of one with REAL_RESULT.
//
// Defines: INVERSE, the other sign, divided by n; REAL_RESULT, an inverse whose src are the first n / 2 + 1 results of a real
// line; HAS_WINDOW, factors of the elements of a line.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define PARTS 2
#endif

__kernel void dft(__global const T* restrict src,
#ifdef HAS_WINDOW
                  __global const T* restrict window,
#endif
                  __global T* restrict dst, __local ACC* restrict roots, __local ACC* restrict line, const int used, const int n,
                  const int results, const int inner, const int src_outer, const int src_inner, const int src_step,
                  const int dst_outer, const int dst_inner, const int dst_step) {
  const int l = get_group_id(0), item = get_local_id(0), items = get_local_size(0);
  const int from = l / inner * src_outer + l % inner * src_inner, to = l / inner * dst_outer + l % inner * dst_inner;
  for (int i = item; i < n; i += items) {
    const ACC turn = 2 * (ACC)i / n;
    roots[2 * i] = cospi(turn);
#ifdef INVERSE
    roots[2 * i + 1] = sinpi(turn);
#else
    roots[2 * i + 1] = -sinpi(turn);
#endif
  }
  for (int i = item; i < used; i += items) {
    ACC factor = 1;
#ifdef HAS_WINDOW
    factor = LOAD_T(window, i);
#endif
#ifdef REAL_RESULT
    // Its conjugate stands at n - i; the first one and the middle one are their own.
    const int is_own = i == 0 || 2 * i == n;
    factor = is_own ? 1 : 2;
#endif
    for (int part = 0; part < PARTS; ++part) line[i * PARTS + part] = factor * LOAD_T(src, (from + i * src_step) * PARTS + part);
#if defined(REAL_RESULT) && PARTS == 2
    if (is_own) line[2 * i + 1] = 0;
#endif
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int o = item; o < results; o += items) {
    ACC real = 0, imaginary = 0;
    for (int i = 0, at = 0; i < used; ++i) {
      const ACC c = roots[2 * at], s = roots[2 * at + 1], x = line[i * PARTS];
      real += x * c;
      imaginary += x * s;
#if PARTS == 2
      const ACC y = line[2 * i + 1];
      real -= y * s;
      imaginary += y * c;
#endif
      at += o;
      at -= at >= n ? n : 0;
    }
#ifdef INVERSE
    real /= n;
    imaginary /= n;
#endif
    const int place = to + o * dst_step;
#ifdef REAL_RESULT
    STORE_T(dst, place, real);
#else
    STORE_T(dst, place * 2, real);
    STORE_T(dst, place * 2 + 1, imaginary);
#endif
  }
}
