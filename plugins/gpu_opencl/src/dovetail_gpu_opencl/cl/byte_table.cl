// dst[o] = table[src[o]], for 8-bit numbers as their bits.
//
// A work item takes RUN elements, 16 at once. NDRange: (size / RUN, rounded up to the local size).
//
// Layout: src and dst dense and alike, at multiples of 16 bytes; table [256].
//
// Tunables: RUN, a multiple of 16, and the local size.
#ifndef RUN
#define RUN 16
#endif

// Four elements that begin with the lowest bits of x.
static uint found(__global const uchar* restrict table, const uint x) {
  return (uint)table[x & 255] | (uint)table[x >> 8 & 255] << 8 | (uint)table[x >> 16 & 255] << 16 | (uint)table[x >> 24] << 24;
}

__kernel void byte_table(__global const uchar* restrict src, __global const uchar* restrict table, __global uchar* restrict dst,
                         const int size) {
  const int first = get_global_id(0) * RUN, last = min(first + RUN, size);
  int o = first;
  for (; o + 16 <= last; o += 16) {
    const uint4 x = *(__global const uint4*)(src + o);
    *(__global uint4*)(dst + o) = (uint4)(found(table, x.x), found(table, x.y), found(table, x.z), found(table, x.w));
  }
  for (; o < last; ++o) dst[o] = table[src[o]];
}
