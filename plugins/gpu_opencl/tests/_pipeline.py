"""cp.async, ldmatrix and mma.sync of tiles_pipelined.cl in plain OpenCL C, so that it runs on other devices."""

from collections.abc import Mapping

from dovetail_gpu_opencl.source import assemble

__all__ = ["assembled", "emulated"]

_EMULATION = """
static float widened(const uint word, const int which) {
  const ushort bits = word >> 16 * which;
#ifdef BFLOATS
  return as_float((uint)bits << 16);
#else
  return vload_half(0, (const half*)&bits);
#endif
}
#define EXCHANGE __local uint exchange[ITEMS * 6];
#define FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)
#define SUB_GROUP_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define COPY(place, from, there) \\
  *(__local uint4*)(tile + (place)) = (there) ? *(__global const uint4*)(from) : (uint4)(0)
#define COPY_HALF(place, from, there) \\
  *(__local uint2*)(tile + (place)) = (there) ? *(__global const uint2*)(from) : (uint2)(0)
#define COMMIT
#define WAIT_FOR(groups) barrier(CLK_LOCAL_MEM_FENCE)
#define FRAGMENTS(r, place)                                                                                    \\
  {                                                                                                            \\
    exchange[item] = (place);                                                                                  \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                                              \\
    for (int w = 0; w < 4; ++w)                                                                                \\
      (r)[w] = ((__local const uint*)(tile + exchange[item / 32 * 32 + w * 8 + lane / 4]))[lane % 4];          \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                                              \\
  }
#define TRANSPOSED(r, place)                                                                                   \\
  {                                                                                                            \\
    exchange[item] = (place);                                                                                  \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                                              \\
    for (int w = 0; w < 4; ++w) {                                                                              \\
      const int at = item / 32 * 32 + w * 8 + lane % 4 * 2;                                                    \\
      const uint low = ((__local const ushort*)(tile + exchange[at]))[lane / 4];                               \\
      const uint high = ((__local const ushort*)(tile + exchange[at + 1]))[lane / 4];                          \\
      (r)[w] = low | high << 16;                                                                               \\
    }                                                                                                          \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                                              \\
  }
#define SWAP(r, v, distance)                                \\
  {                                                         \\
    exchange[item] = as_uint(v);                            \\
    barrier(CLK_LOCAL_MEM_FENCE);                           \\
    r = as_float(exchange[item ^ distance]);                \\
    barrier(CLK_LOCAL_MEM_FENCE);                           \\
  }
#define COLLECT_SUMS(sums, rows)                                                       \\
  for (int r = 0; r < (rows); ++r) {                                                  \\
    exchange[item] = as_uint((sums)[r]);                                              \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                     \\
    (sums)[r] = 0;                                                                    \\
    for (int i = 0; i < 32; ++i) (sums)[r] += as_float(exchange[item / 32 * 32 + i]); \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                     \\
  }
#ifdef FLOATS
#define FACTORS 8
#define FACTOR(word, which) as_float((word) & 0xffffe000)
#define ROUND(word) word = (isnan(as_float(word)) ? (word) : (word) + 0x1000u) & 0xffffe000u
#define WORD(k) ((k) % 4)
#define HALF_OF(k) ((k) / 4)
#else
#define FACTORS 16
#define FACTOR(word, which) widened(word, which)
#define WORD(k) ((k) / 2 % 4)
#define HALF_OF(k) ((k) / 8)
#endif
#define MULTIPLY(c, a, b)                                                        \\
  {                                                                              \\
    for (int w = 0; w < 4; ++w) exchange[item * 6 + w] = (a)[w];                 \\
    for (int w = 0; w < 2; ++w) exchange[item * 6 + 4 + w] = (b)[w];             \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                \\
    for (int r = 0; r < 4; ++r)                                                  \\
      for (int k = 0; k < FACTORS; ++k) {                                        \\
        const int t = WORD(k), up = HALF_OF(k), start = item / 32 * 32;          \\
        const int n = lane % 4 * 2 + r % 2;                                      \\
        const uint x = exchange[(start + lane / 4 * 4 + t) * 6 + up * 2 + r / 2]; \\
        const uint y = exchange[(start + n * 4 + t) * 6 + 4 + up];               \\
        (c)[r] += FACTOR(x, k % 2) * FACTOR(y, k % 2);                           \\
      }                                                                          \\
    barrier(CLK_LOCAL_MEM_FENCE);                                                \\
  }
"""


def emulated(source: str) -> str:
    """The source with the emulation before it, if it has these instructions."""
    formats = "".join(line for line in ("#define FLOATS 1\n", "#define BFLOATS 1\n") if line in source)
    return formats + _EMULATION + source if "cp.async" in source else source


def assembled(file: str, defines: Mapping[str, object], *fragments: str) -> str:
    """In place of `assemble`."""
    return emulated(assemble(file, defines, *fragments))
