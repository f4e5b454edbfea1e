// Sums of products of 8-bit numbers in tiles_pipelined.cl, exact in int, which wraps. They start from START(n), and START_V(n)
// and START_4(n) have eight and four of these. STORE_SUM(o, s, z, m, n) makes element o of dst of the sum s, and STORE_SUMS(o, s,
// n) eight of eight. All read SUM_ARGS, and SUM_CONSTANTS, which are in one of these (kernels/_bytes.py).
//
// Without MATRIX_UNITS, plain OpenCL C in place of matrix_instructions.cl: an item has the same elements of a tile that it has
// there, and adds products of four bytes at once where the device can. There groups do not share a tile: SPLITS is 1, STREAMS 0.
#ifdef FORMAT
#define SUM int
#define SUM2 int2
#define SUM4 int4
#ifndef START
#define START(n) 0
#define START_V(n) 0
#define START_4(n) 0
#endif
#ifndef MATRIX_UNITS
#define MULTIPLY
#define EXCHANGE
#define SUB_GROUP_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define COPY(place, from, there) *(__local uint4*)(tile + (place)) = (there) ? *(__global const uint4*)(from) : (uint4)(0)
#define COPY_HALF(place, from, there) *(__local uint2*)(tile + (place)) = (there) ? *(__global const uint2*)(from) : (uint2)(0)
#define COMMIT
#define WAIT_FOR(groups)
#if defined(DP4A)
static int dot4(const uint x, const uint y, int sum) {
  asm("dp4a." DP4A ".s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(y));
  return sum;
}
#elif defined(__opencl_c_integer_dot_product_input_4x8bit)
static int dot4(const uint x, const uint y, const int sum) { return sum + dot(AS_X4(x), as_char4(y)); }
#else
static int dot4(const uint x, const uint y, const int sum) {
  const int4 p = convert_int4(AS_X4(x)) * convert_int4(as_char4(y));
  return sum + p.x + p.y + p.z + p.w;
}
#endif
static int dot16(const uint4 x, const uint4 y, const int sum) {
  return dot4(x.w, y.w, dot4(x.z, y.z, dot4(x.y, y.y, dot4(x.x, y.x, sum))));
}
#define SLICE(base)                                                                                                         \
  for (int k = 0; k < CHUNKS; ++k) {                                                                                        \
    uint4 fb[WORK_N / 8][2];                                                                                                \
    for (int j = 0; j < WORK_N / 8; ++j)                                                                                    \
      for (int c = 0; c < 2; ++c)                                                                                           \
        fb[j][c] = *(__local const uint4*)(tile + (base) + A_BYTES + PLACE(lx + j * 8 + lane % 4 * 2 + c, k));              \
    for (int i = 0; i < WORK_M / 16; ++i)                                                                                   \
      for (int r = 0; r < 4; r += 2) {                                                                                      \
        const uint4 fa = *(__local const uint4*)(tile + (base) + PLACE(ly + i * 16 + lane / 4 + r * 4, k));                 \
        for (int j = 0; j < WORK_N / 8; ++j)                                                                                \
          for (int c = 0; c < 2; ++c) acc[i][j][r + c] = dot16(fa, fb[j][c], acc[i][j][r + c]);                             \
      }                                                                                                                     \
  }
#endif
#ifdef DIRECT_1
// byte_results.cl: the sum that an item's column c starts with, and the operand that is read where results are stored.
#define FIRST_SUM(c) start[c]
#define LOWEST(bits) (31 - clz((bits) & -(bits)))
typedef struct {
  uint word[WIDE / 4];
} WORDS;
#ifdef MATRIX_UNITS
static uint packed_bytes(const uint a, const uint b, const uint c, const uint d) {
  uint low, high, all;
  asm("prmt.b32 %0, %1, %2, 0x40;" : "=r"(low) : "r"(a), "r"(b));
  asm("prmt.b32 %0, %1, %2, 0x40;" : "=r"(high) : "r"(c), "r"(d));
  asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(all) : "r"(low), "r"(high));
  return all;
}
static float kept_float(const uint word, const uint byte) {
  uint bits;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bits) : "r"(word), "r"(0x4b000000u), "r"(0x7650u + byte));
  return as_float(bits);
}
#define PREFETCH(from) asm volatile("prefetch.global.L2 [%0];" ::"l"((ulong)(from)))
#else
static uint packed_bytes(const uint a, const uint b, const uint c, const uint d) {
  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;
}
static float kept_float(const uint word, const uint byte) { return as_float(0x4b000000u | (word >> byte * 8 & 255)); }
#define PREFETCH(from)
#endif
#ifdef KEPT_BYTES
#define KEEP_BYTES(i)                                                                                                      \
  for (int h = 0; h < 2; ++h) {                                                                                            \
    const int m = min(m0 + ly + (i) * 16 + h * 8 + lane / 4, M - 1);                                                       \
    *(WORDS_T*)&kept[i][h] = *(__global const WORDS_T*)(KEPT_BYTES + m * N + column) ^ (WORDS_T)(KEPT_SIGN);               \
  }
#define KEPT_FLOAT(i, h, e) kept_float(kept[i][h].word[(e) / 4], (e) % 4)
#define KEPT_AGAIN(o, c) kept_float(*(__global const uint*)(KEPT_BYTES + (o)) ^ KEPT_SIGN, c)
#else
#define KEPT_FLOAT(i, h, e) 0.0f
#define KEPT_AGAIN(o, c) 0.0f
#endif
#endif
#endif
