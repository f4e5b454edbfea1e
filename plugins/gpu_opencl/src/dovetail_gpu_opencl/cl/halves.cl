// Eight halves or bfloat16 at an address that is a multiple of 16, as floats. NVIDIA's driver makes some hundred instructions of
// vstore_half_rte and its like, where GPUs from sm_80 on have one for two elements.
#ifndef HALVES
#define HALVES
#ifdef __NV_CL_C_VERSION
static uint two_halves(const float low, const float high) {
  uint bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
static float2 two_floats(const uint bits) {
  float low, high;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(bits));
  return (float2)(low, high);
}
static uint two_bfloats(const float low, const float high) {
  uint bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
#else
static uint two_halves(const float low, const float high) {
  ushort bits[2];
  vstore_half_rte(low, 0, (half*)bits);
  vstore_half_rte(high, 1, (half*)bits);
  return (uint)bits[0] | (uint)bits[1] << 16;
}
static float2 two_floats(const uint bits) {
  const ushort parts[2] = {(ushort)bits, (ushort)(bits >> 16)};
  return (float2)(vload_half(0, (const half*)parts), vload_half(1, (const half*)parts));
}
static uint bfloat_of(const float x) {
  const uint bits = as_uint(x);
  return x != x ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static uint two_bfloats(const float low, const float high) { return bfloat_of(low) | bfloat_of(high) << 16; }
#endif
static float2 two_floats_of_bfloats(const uint bits) { return (float2)(as_float(bits << 16), as_float(bits & 0xffff0000)); }
static float8 floats_of(const uint4 bits) {
  return (float8)(two_floats(bits.x), two_floats(bits.y), two_floats(bits.z), two_floats(bits.w));
}
static uint4 halves_of(const float8 v) {
  return (uint4)(two_halves(v.s0, v.s1), two_halves(v.s2, v.s3), two_halves(v.s4, v.s5), two_halves(v.s6, v.s7));
}
static float8 floats_of_bfloats(const uint4 bits) {
  return (float8)(two_floats_of_bfloats(bits.x), two_floats_of_bfloats(bits.y), two_floats_of_bfloats(bits.z),
                  two_floats_of_bfloats(bits.w));
}
static uint4 bfloats_of(const float8 v) {
  return (uint4)(two_bfloats(v.s0, v.s1), two_bfloats(v.s2, v.s3), two_bfloats(v.s4, v.s5), two_bfloats(v.s6, v.s7));
}
static float8 load_half8(__global const half* p) { return floats_of(*(__global const uint4*)p); }
static void store_half8(const float8 v, __global half* p) { *(__global uint4*)p = halves_of(v); }
static float8 load_bfloat8(__global const ushort* p) { return floats_of_bfloats(*(__global const uint4*)p); }
static void store_bfloat8(const float8 v, __global ushort* p) { *(__global uint4*)p = bfloats_of(v); }
#endif
