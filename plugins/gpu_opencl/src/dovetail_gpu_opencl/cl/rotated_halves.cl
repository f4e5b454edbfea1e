// dst = src * cosines + rotated * sines, where rotated has the halves of src's last axis, WIDTH elements, the second one negated
// before the first one. Cosines and sines are broadcast: their elements are at steps c0 to c3 and s0 to s3 along the four axes.
//
// With TWO the elements from `size` on are those of dst2, which is made of src2 in the same way and has heads2 for heads.
//
// NDRange: (elements, rounded up to the local size). Layout: four axes, of which `rows` and `heads` are the third and the second
// one.
// Tunables: the local size.
#ifndef T
#define T float
#define STORE_T(p, i, v) ((p)[i] = (v))
#define X float
#define LOAD_X(p, i) ((p)[i])
#define C float
#define LOAD_C(p, i) ((p)[i])
#define S float
#define LOAD_S(p, i) ((p)[i])
#define WIDTH 2
#endif

__kernel void rotated_halves(__global const X* restrict src, __global const C* restrict cosines, __global const S* restrict sines,
                             __global T* restrict dst, const int size, const int heads, const int rows, const int c0,
                             const int c1, const int c2, const int c3, const int s0, const int s1, const int s2, const int s3
#ifdef TWO
                             , __global const X* restrict src2, __global T* dst2, const int size2, const int heads2
#endif
) {
  int o = get_global_id(0);
#ifdef TWO
  const bool first = o < size;
  const int all = first ? size : size2, counted = first ? heads : heads2;
  __global const X* from = first ? src : src2;
  __global T* to = first ? dst : dst2;
  o -= first ? 0 : size;
#else
  const int all = size, counted = heads;
  __global const X* from = src;
  __global T* to = dst;
#endif
  if (o >= all) return;
  const int d = o % WIDTH, r = o / WIDTH % rows, h = o / WIDTH / rows % counted, b = o / WIDTH / rows / counted;
  const float x = LOAD_X(from, o), turned = d < WIDTH / 2 ? -LOAD_X(from, o + WIDTH / 2) : LOAD_X(from, o - WIDTH / 2);
  const float c = LOAD_C(cosines, b * c0 + h * c1 + r * c2 + d * c3), s = LOAD_S(sines, b * s0 + h * s1 + r * s2 + d * s3);
  STORE_T(to, o, x * c + turned * s);
}
