// dst = post((src - zero) * scale). zero may be NULL.
//
// A work item computes one element. NDRange: (size, rounded up to the local size).
//
// Layout: the parameters of element o lie at o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride +
// o % inner * inner_stride. EXACT: the type of the difference.
//
// Tunables: the local size.
#ifndef T
#define T float
#define STORE_T(p, i, v) ((p)[i] = (v))
#define S float
#define LOAD_S(p, i) ((p)[i])
#define Q uchar
#define LOAD_Q(p, i) ((p)[i])
#define EXACT long
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif

__kernel void dequantize_linear(__global const Q* restrict src, __global const S* restrict scale, __global const Q* zero,
                                __global T* dst, const int size, const int inner, const int axis, const int block,
                                const int outer_stride, const int block_stride, const int inner_stride POST_ARGS) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int at = o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride + o % inner * inner_stride;
  const EXACT whole = (EXACT)LOAD_Q(src, o) - (zero ? (EXACT)LOAD_Q(zero, at) : 0);
  STORE_T(dst, o, POST((float)whole * (float)LOAD_S(scale, at), o));
}
