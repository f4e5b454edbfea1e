// Sums of products of 8-bit numbers in tiles_pipelined.cl, exact in int, which wraps. They start from START(n), and START_V(n) has
// eight of these. STORE_SUM(o, s, z, m, n) makes element o of dst of the sum s, and STORE_SUMS(o, s, n) eight of eight. All read
// SUM_ARGS (kernels/_bytes.py).
//
// Without MATRIX_UNITS, plain OpenCL C in place of matrix_instructions.cl: an item has the same elements of a tile that it has there, and
// adds products of four bytes at once where the device can. There the groups of a tile do not share it: SPLITS is 1.
#ifdef FORMAT
#define SUM int
#define SUM2 int2
#define SUM4 int4
#ifndef START
#define START(n) 0
#define START_V(n) 0
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
#endif
