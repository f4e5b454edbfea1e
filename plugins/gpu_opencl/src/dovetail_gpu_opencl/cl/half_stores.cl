// STORE_HALF(p, i, v) rounds a float, or a double, to the nearest half at p[i] in global memory. NVIDIA's driver makes some hundred
// instructions of vstore_half_rte, where its GPUs have one.
#ifdef __NV_CL_C_VERSION
static ushort half_bits(const float x) {
  uint bits;
  asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b32 %0, {h, h};}" : "=r"(bits) : "f"(x));
  return (ushort)bits;
}
#define STORE_HALF(p, i, v)                                 \
  do {                                                      \
    if (sizeof(v) == 8)                                     \
      vstore_half_rte(v, i, p);                             \
    else                                                    \
      ((__global ushort*)(p))[i] = half_bits((float)(v));   \
  } while (0)
#else
#define STORE_HALF(p, i, v) vstore_half_rte(v, i, p)
#endif
