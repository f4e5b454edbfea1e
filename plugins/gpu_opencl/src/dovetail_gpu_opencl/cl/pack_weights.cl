// dst = the weights of a convolution in the order of conv_rows.cl, for weights that are computed.
//
// A work item writes the COLUMNS neighbouring output channels of one element of a window, for all input channels; those beyond
// the channels of a group are zeros. NDRange: (KERNEL, blocks, groups), local size 1.
//
// Layout: src dense [groups * own][C][KERNEL] of T, dst [groups][blocks][KERNEL][C][COLUMNS] of ACC.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define ACC float
#define COLUMNS 8
#endif

__kernel void pack_weights(__global const T* restrict src, __global ACC* restrict dst, const int own, const int C,
    const int KERNEL) {
  const int k = get_global_id(0), block = get_global_id(1), group = get_global_id(2), first = block * COLUMNS;
  __global const T* s = src + (group * own + first) * (C * KERNEL) + k;
  __global ACC* d = dst + ((group * (int)get_global_size(1) + block) * KERNEL + k) * (C * COLUMNS);
  for (int c = 0; c < C; ++c)
    for (int m = 0; m < COLUMNS; ++m) d[c * COLUMNS + m] = first + m < own ? LOAD_T(s, (m * C + c) * KERNEL) : 0;
}
