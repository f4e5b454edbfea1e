// The statistics of rows of SIZE elements that a sub-group of 32 items has in registers: eight neighbours an item and turn, in
// TURNS vectors a row, with zeros from SIZE on. After matrix_instructions.cl, in a kernel that has `lane`. Rows are worked on
// together:
// their shuffles wait for each other only within a row.
#define TURNS ((SIZE + 255) / 256)
#define TOTAL(v) (v.s0 + v.s1 + v.s2 + v.s3 + v.s4 + v.s5 + v.s6 + v.s7)
#ifndef COLLECT_SUMS
#define ADD_FROM(sums, rows, distance)                  \
  _Pragma("unroll") for (int r = 0; r < (rows); ++r) {  \
    float other;                                        \
    SWAP(other, (sums)[r], distance);                   \
    (sums)[r] += other;                                 \
  }
// Each of these sums over all items.
#define COLLECT_SUMS(sums, rows) \
  {                              \
    ADD_FROM(sums, rows, 16)     \
    ADD_FROM(sums, rows, 8)      \
    ADD_FROM(sums, rows, 4)      \
    ADD_FROM(sums, rows, 2)      \
    ADD_FROM(sums, rows, 1)      \
  }
#endif
// x[row] becomes (x - mean) / sqrt(variance + EPSILON).
#define STANDARDIZE(x, rows)                                                        \
  {                                                                                 \
    float mean[rows], variance[rows];                                               \
    _Pragma("unroll") for (int r = 0; r < (rows); ++r) {                            \
      mean[r] = 0;                                                                  \
      _Pragma("unroll") for (int t = 0; t < TURNS; ++t) mean[r] += TOTAL((x)[r][t]); \
    }                                                                               \
    COLLECT_SUMS(mean, rows);                                                       \
    _Pragma("unroll") for (int r = 0; r < (rows); ++r) {                            \
      variance[r] = 0;                                                              \
      _Pragma("unroll") for (int t = 0; t < TURNS; ++t) {                           \
        (x)[r][t] -= mean[r] / SIZE;                                                \
        const float8 squares = (x)[r][t] * (x)[r][t];                               \
        if ((t * 32 + lane) * 8 < SIZE) variance[r] += TOTAL(squares);              \
      }                                                                             \
    }                                                                               \
    COLLECT_SUMS(variance, rows);                                                   \
    _Pragma("unroll") for (int r = 0; r < (rows); ++r) {                            \
      const float factor = 1.0f / sqrt(variance[r] / SIZE + EPSILON);               \
      _Pragma("unroll") for (int t = 0; t < TURNS; ++t) (x)[r][t] *= factor;        \
    }                                                                               \
  }
