// dst = src * cosines + rotated * sines, where rotated has the halves of src's last axis, WIDTH elements, the second one negated before
// the first one. Cosines and sines are broadcast: their elements are at steps c0 to c3 and s0 to s3 along the four axes.
//
// NDRange: (elements, rounded up to the local size). Layout: four axes, of which `rows` and `heads` are the third and the second one.
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
                             __global T* restrict dst, const int size, const int heads, const int rows, const int c0, const int c1,
                             const int c2, const int c3, const int s0, const int s1, const int s2, const int s3) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int d = o % WIDTH, r = o / WIDTH % rows, h = o / WIDTH / rows % heads, b = o / WIDTH / rows / heads;
  const float x = LOAD_X(src, o), turned = d < WIDTH / 2 ? -LOAD_X(src, o + WIDTH / 2) : LOAD_X(src, o - WIDTH / 2);
  const float c = LOAD_C(cosines, b * c0 + h * c1 + r * c2 + d * c3), s = LOAD_S(sines, b * s0 + h * s1 + r * s2 + d * s3);
  STORE_T(dst, o, x * c + turned * s);
}
