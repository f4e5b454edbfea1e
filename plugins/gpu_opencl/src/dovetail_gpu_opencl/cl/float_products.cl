// Products of floats on matrix units (tiles_pipelined.cl, attention_floats.cl). With ROUNDED factors are rounded to TF32 and
// multiplied once, and matrix units add. Without, products are as exact as by multiply-adds of floats: x is the sum of the
// nearest TF32 number `high` and of `low`, of which the matrix units take 11 bits, and x * y is high * high + high * low + low *
// high. What is left out is 2^-24 of it, as an error of rounding. Matrix units add by truncation, so they add 16 products at most;
// these sums are added as floats.
//
// Infinities, NaN and numbers whose TF32 is infinite make sums that are not numbers. Those are computed again, by fma.
// Numbers below 2^-113 lose bits: what they lose is less than 2^-136, and so less than where denormals are taken as zeros.
#ifdef FLOATS
#define NO_NUMBER(bits) (((bits) & 0x7f800000) == 0x7f800000)
// ADD_LOW adds to the product of the TF32 numbers `a` and `b` those with what is left of each factor.
#ifdef ROUNDED
#define SEPARATE(high, low) _Pragma("unroll") for (int w = 0; w < 4; ++w) ROUND((high)[w])
#define ADD_LOW(sum, a, low_a, b, low_b)
#else
#define SEPARATE(high, low)                                                  \
  _Pragma("unroll") for (int w = 0; w < 4; ++w) {                            \
    const float whole = as_float((high)[w]);                                 \
    (high)[w] = ((high)[w] + 0x1000u) & 0xffffe000u;                         \
    (low)[w] = as_uint(whole - as_float((high)[w]));                         \
  }
#define ADD_LOW(sum, a, low_a, b, low_b) \
  MULTIPLY(sum, low_a, b);               \
  MULTIPLY(sum, a, low_b)
#endif
#ifdef TILE_M
#define ALONG_N _Pragma("unroll") for (int j = 0; j < WORK_N / 8; ++j)
#ifdef ROUNDED
#define MULTIPLY_FLOATS(acc, few, fa, fb, k)                                                \
  {                                                                                         \
    _Pragma("unroll") for (int i = 0; i < WORK_M / 16; ++i) SEPARATE((fa)[i], );            \
    _Pragma("unroll") for (int j = 0; j < WORK_N / 16; ++j) SEPARATE((fb)[j], );            \
    _Pragma("unroll") for (int i = 0; i < WORK_M / 16; ++i)                                 \
      ALONG_N MULTIPLY((acc)[i][j], (fa)[i], (fb)[j / 2] + j % 2 * 2);                      \
  }
#else
// `few` are sums of the two slices of eight from an even number of them on, k / 2.
#define MULTIPLY_FLOATS(acc, few, fa, fb, k)                                              \
  {                                                                                       \
    uint low_b[WORK_N / 16][4];                                                           \
    _Pragma("unroll") for (int j = 0; j < WORK_N / 16; ++j) SEPARATE((fb)[j], low_b[j]);  \
    _Pragma("unroll") for (int i = 0; i < WORK_M / 16; ++i) {                             \
      uint low_a[4];                                                                      \
      SEPARATE((fa)[i], low_a);                                                           \
      if ((k) % 4 == 0) ALONG_N for (int r = 0; r < 4; ++r) (few)[i][j][r] = 0;           \
      ALONG_N MULTIPLY((few)[i][j], low_a, (fb)[j / 2] + j % 2 * 2);                      \
      ALONG_N MULTIPLY((few)[i][j], (fa)[i], low_b[j / 2] + j % 2 * 2);                   \
      ALONG_N MULTIPLY((few)[i][j], (fa)[i], (fb)[j / 2] + j % 2 * 2);                    \
      if ((k) % 4 != 0) ALONG_N for (int r = 0; r < 4; ++r) (acc)[i][j][r] += (few)[i][j][r];\
    }                                                                                     \
  }
#endif
// Element (m, n) of the product of the matrices, or of the image, at a by the rows at b.
static float float_sum(__global const ushort* a, __global const ushort* b, const int m, const int n SIZES) {
  __global const float* y = (__global const float*)b + n * (B_N / 2);
  float sum = 0;
#ifdef CONV
  const int whole = REMAINDER(m, P), pixel = IN_SLICE(whole), z0 = FIRST_Z(SLICE_OF(whole));
  const int y0 = QUOTIENT(pixel, OW) * STRIDE_Y - PAD_Y, x0 = REMAINDER(pixel, OW) * STRIDE_X - PAD_X;
  __global const float* x = (__global const float*)a + QUOTIENT(m, P) * (S_B / 2);
#pragma unroll 1
  for (int k = 0; k < K / 2; ++k) {
    const int tap = k / (C / 2), iz = z0 + TAP_Z(tap), iy = y0 + TAP_Y(tap), ix = x0 + TAP_X(tap);
    const bool there = INSIDE(iz, iy, ix);
    sum = fma(there ? x[iz * (S_Z / 2) + iy * (S_Y / 2) + ix * (S_X / 2) + k % (C / 2)] : 0.0f, y[k], sum);
  }
#else
  __global const float* x = (__global const float*)a + m * (A_M / 2);
#pragma unroll 1
  for (int k = 0; k < K / 2; ++k) sum = fma(x[k], y[k], sum);
#endif
  return sum;
}
// Eight neighbours along n, of which those that are numbers stay.
static float8 float_sums(
    __global const ushort* a, __global const ushort* b, const float8 found, const int m, const int n SIZES) {
  float v[8] __attribute__((aligned(32)));
  *(float8*)v = found;
#pragma unroll 1
  for (int c = 0; c < 8; ++c)
    if (NO_NUMBER(as_int(v[c]))) v[c] = float_sum(a, b, m, n + c PASSED);
  return *(float8*)v;
}
#endif
#endif
