// dst[m][n] = post(sum over k of a[m][k] * (q[k][n] * scale + offset)) with a matrix in blocks, for GPUs and few rows.
//
// With MATRICES 2 or 3 there are as many matrices and results, or with GATED one result: post(a * first) * (a * second).
// With NORMED, each row of a is divided by the root of the mean of its squares plus EPSILON, and multiplied by norm[k]: each
// group adds up the squares, and its sums are divided.
//
// A work group computes 4 * LANES columns of ROWS rows. Its work items share k: each adds up every PARTS-th run of RUN rows of q,
// for 4 columns; the sums of all meet in local memory.
// NDRange: (sum of ceil(N / (4 * LANES)) of all results * GROUP, ceil(M / ROWS)), local size (GROUP, 1), GROUP = LANES * PARTS.
//
// Layout: a [M][K], dst [M][N], matrices as in blocks_plain.cl, of one form, but with N1 and N2 columns. ALIGNED says that
// all of these are multiples of 4.
//
// Tunables: LANES, PARTS (a power of two), ROWS, RUN (divides HEIGHT). Local memory: 4 * GROUP * ROWS floats, twice with GATED;
// with NORMED GROUP * ROWS more.
#ifndef N
#define MATRICES 1
#define M 1
#define N 1
#define K 1
#endif
#ifndef LANES
#define LANES 8
#define PARTS 8
#define ROWS 1
#define RUN 1
#endif
#include "blocks_plain.cl"
#include "post.cl"
#define GROUP (LANES * PARTS)
#define COLS (4 * LANES)
#define TILES(columns) (((columns) + COLS - 1) / COLS)
#define RUNS ((K + SIZE - 1) / SIZE * (HEIGHT / RUN))
#if BITS == 4
#define NUMBER4 int4
#define CONVERT convert_int4
#else
#define NUMBER4 float4
#define CONVERT convert_float4
#endif
// Four columns; those behind the last one are zeros.
#ifdef ALIGNED
#define FOUR_FLOATS(p) (*(__global const float4*)(p))
#define AT(i, x) (x)
#else
#define FOUR_FLOATS(p) ((float4)((p)[0], AT(1, (p)[1]), AT(2, (p)[2]), AT(3, (p)[3])))
#define AT(i, x) (n + i < columns ? (x) : 0)
#endif
#if defined(ALIGNED) && defined(WHOLE)
#define VECTOR_4(t) VECTOR_4_(t)
#define VECTOR_4_(t) t##4
#define FOUR_Q(p) CONVERT(*(__global const VECTOR_4(Q)*)(p))
#else
#define FOUR_Q(p) ((NUMBER4)(LOAD_Q(p, 0), AT(1, LOAD_Q(p, 1)), AT(2, LOAD_Q(p, 2)), AT(3, LOAD_Q(p, 3))))
#endif
#ifdef NORMED
#define NORM , norm
#define NORM_POINTER , __global const float* restrict norm
#define FACTOR(k) * norm[k]
#else
#define NORM
#define NORM_POINTER
#define FACTOR(k)
#endif
#if K % SIZE == 0
#define A(m, k) (a[(m) * K + (k)] FACTOR(k))
#else
#define A(m, k) ((k) < K ? a[(m) * K + (k)] FACTOR(k) : 0.0f)
#endif

#ifdef HAS_OFFSETS
#define MATRIX(q, scales, offsets) q, scales, offsets
#define POINTERS(q, scales, offsets) \
  , __global const Q *q, __global const float *scales, __global const float *offsets
#define TAKE_OFFSETS(from) offsets = from;
#else
#define MATRIX(q, scales, offsets) q, scales
#define POINTERS(q, scales, offsets) , __global const Q *q, __global const float *scales
#define TAKE_OFFSETS(from)
#endif
// A matrix as arguments of the kernel, and as pointers.
#ifdef TOGETHER
#define GIVEN(i) , __global const uchar* matrix##i
#define TAKE(i, columns) \
  __global const Q* q##i = Q_OF(matrix##i); \
  __global const float* scales##i = SCALES_OF(matrix##i, columns); \
  DECLARE_OFFSETS(offsets##i, OFFSETS_OF(matrix##i, columns))
#ifdef HAS_OFFSETS
#define DECLARE_OFFSETS(name, from) __global const float* name = from;
#else
#define DECLARE_OFFSETS(name, from)
#endif
#else
#define GIVEN(i) POINTERS(q##i, scales##i, offsets##i)
#define TAKE(i, columns)
#endif
#ifdef GATED
#define SUMS 2
#define MORE_ARGS GIVEN(1)
#else
#define SUMS 1
#if MATRICES > 2
#define MORE_ARGS GIVEN(1), __global float *dst1 GIVEN(2), __global float *dst2
#elif MATRICES > 1
#define MORE_ARGS GIVEN(1), __global float *dst1
#else
#define MORE_ARGS
#endif
#endif

// Four columns of ROWS rows: what the runs of one work item add up to.
static inline void multiply(float4* acc, __global const float* restrict a POINTERS(restrict q, restrict scales, restrict offsets),
                            const int n, const int columns, const int m0, const int own NORM_POINTER) {
#pragma unroll
  for (int m = 0; m < ROWS; ++m) acc[m] = (float4)(0);
  for (int run = own; run < RUNS; run += PARTS) {
    const int block = run / (HEIGHT / RUN), r0 = run % (HEIGHT / RUN) * RUN;
    float4 sum[ROWS];
    float total[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      sum[m] = (float4)(0);
      total[m] = 0;
    }
#pragma unroll
    for (int r = 0; r < RUN; ++r) {
      const int k = block * SIZE + r0 + r;
      const NUMBER4 w = FOUR_Q(q + (size_t)(block * HEIGHT + r0 + r) * columns + n);
#if BITS == 4
      const float4 low = convert_float4(w & 15), high = convert_float4(w >> 4);
#endif
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        const int row = min(m0 + m, M - 1);
        const float x = A(row, k);
#if BITS == 4
        const float y = A(row, k + HEIGHT);
        sum[m] += x * low + y * high;
        total[m] += x + y;
#else
        sum[m] += x * w;
        total[m] += x;
#endif
      }
    }
    const float4 scale = FOUR_FLOATS(scales + block * columns + n);
#ifdef HAS_OFFSETS
    const float4 offset = FOUR_FLOATS(offsets + block * columns + n);
#endif
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      acc[m] += scale * sum[m];
#ifdef HAS_OFFSETS
      acc[m] += offset * total[m];
#endif
    }
  }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void mat_mul_blocks_split(
    __global const float* restrict a GIVEN(), __global float* dst MORE_ARGS NORM_POINTER POST_ARGS) {
  TAKE(, N)
#if MATRICES > 1
  TAKE(1, N1)
#endif
#if MATRICES > 2
  TAKE(2, N2)
#endif
  __local float4 part[SUMS * ROWS][GROUP];
  const int item = get_local_id(0), lane = item % LANES, own = item / LANES, m0 = get_group_id(1) * ROWS;
  int tile = get_group_id(0), columns = N;
#if MATRICES > 1 && !defined(GATED)
  if (tile >= TILES(N)) {
    tile -= TILES(N);
    q = q1;
    scales = scales1;
    TAKE_OFFSETS(offsets1)
    dst = dst1;
    columns = N1;
#if MATRICES > 2
    if (tile >= TILES(N1)) {
      tile -= TILES(N1);
      q = q2;
      scales = scales2;
      TAKE_OFFSETS(offsets2)
      dst = dst2;
      columns = N2;
    }
#endif
  }
#endif
  const int n = tile * COLS + lane * 4;
  float4 acc[SUMS * ROWS];
#pragma unroll
  for (int m = 0; m < SUMS * ROWS; ++m) acc[m] = (float4)(0);
  if (n < columns) {
    multiply(acc, a, MATRIX(q, scales, offsets), n, columns, m0, own NORM);
#ifdef GATED
    multiply(acc + ROWS, a, MATRIX(q1, scales1, offsets1), n, columns, m0, own NORM);
#endif
  }
#pragma unroll
  for (int m = 0; m < SUMS * ROWS; ++m) part[m][item] = acc[m];
#ifdef NORMED
  __local float squares[ROWS][GROUP];
#pragma unroll
  for (int m = 0; m < ROWS; ++m) {
    float sum = 0;
    for (int k = item; k < K; k += GROUP) {
      const float x = a[min(m0 + m, M - 1) * K + k];
      sum += x * x;
    }
    squares[m][item] = sum;
  }
#endif
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int parts = PARTS / 2; parts > 0; parts /= 2) {
    if (own < parts) {
#pragma unroll
      for (int m = 0; m < SUMS * ROWS; ++m) part[m][item] += part[m][item + parts * LANES];
#ifdef NORMED
#pragma unroll
      for (int m = 0; m < ROWS; ++m) squares[m][item] += squares[m][item + parts * LANES];
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int e = item; e < ROWS * COLS; e += GROUP) {
    const int m = e / COLS, column = tile * COLS + e % COLS;
    if (m0 + m >= M || column >= columns) continue;
    const int o = (m0 + m) * columns + column;
#ifdef NORMED
    float sum = 0;
#pragma unroll
    for (int i = 0; i < LANES; ++i) sum += squares[m][i];
    const float root = sqrt(sum / K + EPSILON);
#define NORMALIZED(x) ((x) / root)
#else
#define NORMALIZED(x) (x)
#endif
    float s = POST(NORMALIZED(((__local const float*)part[m])[e % COLS]), o);
#ifdef GATED
    s *= NORMALIZED(((__local const float*)part[ROWS + m])[e % COLS]);
#endif
    dst[o] = s;
  }
}
