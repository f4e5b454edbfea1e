"""mma.sync, its roundings and fences in plain OpenCL C, so that what is made for NVIDIA GPUs runs on other devices."""

from collections.abc import Mapping

from dovetail_gpu_opencl.source import assemble

__all__ = ["assembled", "emulated"]

_START = "// Products of matrices as in tiles.cl on matrix units"
_FENCE = "#define FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)\n"
_EMULATION = """
#ifndef MATRIX
#define MATRIX 3
#endif
#if MATRIX == 1
#define KEPT 1
#else
#define KEPT 2
#endif
static uint narrowed(const float x) {
#if MATRIX == 1
  return (as_uint(x) + 0x1000) & 0xffffe000;
#elif MATRIX == 2
  return (as_uint(x) + 0x7fff + (as_uint(x) >> 16 & 1)) >> 16;
#else
  ushort bits;
  vstore_half_rte(x, 0, (half*)&bits);
  return bits;
#endif
}
static float widened(const uint word, const int which) {
#if MATRIX == 1
  return as_float(word);
#elif MATRIX == 2
  return as_float((word >> 16 * which) << 16);
#else
  const ushort bits = word >> 16 * which;
  return vload_half(0, (const half*)&bits);
#endif
}
static uint rounded(const float low, const float high) {
  return KEPT == 1 ? narrowed(low) : narrowed(low) | narrowed(high) << 16;
}
#define EXCHANGE __local uint exchange[ITEMS * 6];
#define MULTIPLY(c, a, b)                                                        \\
  {                                                                              \\
    for (int w = 0; w < 4; ++w) exchange[item * 6 + w] = (a)[w];                 \\
    for (int w = 0; w < 2; ++w) exchange[item * 6 + 4 + w] = (b)[w];             \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                \\
    for (int r = 0; r < 4; ++r)                                                  \\
      for (int k = 0; k < 8 * KEPT; ++k) {                                       \\
        const int t = k / KEPT % 4, up = k / KEPT / 4, base = item / 32 * 32;    \\
        const int n = lane % 4 * 2 + r % 2;                                      \\
        const uint x = exchange[(base + lane / 4 * 4 + t) * 6 + up * 2 + r / 2]; \\
        const uint y = exchange[(base + n * 4 + t) * 6 + 4 + up];                \\
        (c)[r] += widened(x, k % KEPT) * widened(y, k % KEPT);                   \\
      }                                                                          \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                \\
  }
"""


def emulated(source: str) -> str:
    """The source with fences, and the emulation before tiles_matrix.cl if that is in it."""
    return _FENCE + source.replace(_START, _EMULATION + _START)


def assembled(file: str, defines: Mapping[str, object], *fragments: str) -> str:
    """In place of `assemble`."""
    return emulated(assemble(file, defines, *fragments))
