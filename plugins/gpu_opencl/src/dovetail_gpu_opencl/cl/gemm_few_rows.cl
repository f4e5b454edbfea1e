// dst[m][n] = post(sum over k of a[m][k] * wei[n][k]) for a few rows, for GPUs: such products take as long as it takes to read
// wei.
//
// LANES items add up a column together, eight elements at a time, of ROWS rows at once. NDRange: (ceil(N * LANES / GROUP) * GROUP,
// ceil(M / ROWS)), local size (GROUP, 1).
//
// Layout: a [M][K] of As with a_m elements from row to row, wei [N][K] of Ws, dst dense [M][N]. K and a_m are multiples of
// 8.
//
// With BIASED bia has N floats, which are added before post. With PARTS columns from begin1 and begin2 on are those of the
// results dst1 and dst2, whose rows are as dense. With GATED there are two products: wei [2][N][K], bia [2][N], and the result is
// post(first) * second. With EPSILON rows of a are normalized: a[m][k] * scale[k] / sqrt(mean of a[m]^2 + EPSILON), which is
// found on the way.
//
// Tunables: GROUP, a multiple of LANES; LANES, a power of two that is at least ROWS.
#include "halves.cl"
#ifndef T
#define T float
#define STORE_T(p, i, v) ((p)[i] = (v))
#define A float
#define W float
#define ROWS 1
#define LANES 32
#define GROUP 128
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifdef GATED
#define MATRICES 2
#else
#define MATRICES 1
#endif
#ifdef EPSILON
#define SUMS (MATRICES + 1)
#else
#define SUMS MATRICES
#endif
#include "post.cl"
// Not joined of two halves: Oclgrind 21.10 ends the process there.
static float8 load_float8(__global const float* p) {
  const float4 a = *(__global const float4*)p, b = *(__global const float4*)(p + 4);
  return (float8)(a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w);
}
#ifdef A_IS_HALF
#define READ_A load_half8
#else
#define READ_A load_float8
#endif
#ifdef W_IS_HALF
#define READ_W load_half8
#else
#define READ_W load_float8
#endif
#ifdef S_IS_HALF
#define READ_S load_half8
#else
#define READ_S load_float8
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gemm_few_rows(
    __global const A* restrict a, __global const W* restrict wei, __global T* dst, const int M, const int N, const int K,
    const int a_m
#ifdef BIASED
    , __global const float* restrict bia
#endif
#ifdef EPSILON
    , __global const S* restrict scale
#endif
#if PARTS > 1
    , __global T* dst1, const int begin1
#endif
#if PARTS > 2
    , __global T* dst2, const int begin2
#endif
    POST_ARGS) {
  // With EPSILON the last sum of a row is that of its squares.
  __local float part[SUMS][ROWS][GROUP];
  const int item = get_local_id(0), lane = item % LANES, n = get_group_id(0) * (GROUP / LANES) + item / LANES;
  const int row = get_global_id(1) * ROWS;
  float4 sum[SUMS][ROWS];
#pragma unroll
  for (int i = 0; i < SUMS; ++i)
#pragma unroll
    for (int m = 0; m < ROWS; ++m) sum[i][m] = 0;
  __global const W* column = wei + (size_t)min(n, N - 1) * K;
#pragma unroll 4
  for (int k = lane * 8; k < K; k += LANES * 8) {
    float8 w[MATRICES];
#pragma unroll
    for (int i = 0; i < MATRICES; ++i) w[i] = READ_W(column + (size_t)i * N * K + k);
#ifdef EPSILON
    const float8 s = READ_S(scale + k);
#endif
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      float8 x = READ_A(a + (size_t)min(row + m, M - 1) * a_m + k);
#ifdef EPSILON
      sum[MATRICES][m] += x.lo * x.lo;
      sum[MATRICES][m] += x.hi * x.hi;
      x *= s;
#endif
#pragma unroll
      for (int i = 0; i < MATRICES; ++i) {
        sum[i][m] += w[i].lo * x.lo;
        sum[i][m] += w[i].hi * x.hi;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < SUMS; ++i)
#pragma unroll
    for (int m = 0; m < ROWS; ++m) part[i][m][item] = (sum[i][m].x + sum[i][m].y) + (sum[i][m].z + sum[i][m].w);
  for (int width = LANES / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < width) {
#pragma unroll
      for (int i = 0; i < SUMS; ++i)
#pragma unroll
        for (int m = 0; m < ROWS; ++m) part[i][m][item] += part[i][m][item + width];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane < min(ROWS, M - row) && n < N) {
    float v[MATRICES];
#pragma unroll
    for (int i = 0; i < MATRICES; ++i) {
      v[i] = part[i][lane][item - lane];
#ifdef EPSILON
      v[i] *= 1 / sqrt(part[MATRICES][lane][item - lane] / K + EPSILON);
#endif
#ifdef BIASED
      v[i] += bia[i * N + n];
#endif
    }
    __global T* to = dst;
    int at = n, width = N;
#if PARTS > 1
    width = begin1;
    if (n >= begin1) to = dst1, at = n - begin1, width = N - begin1;
#endif
#if PARTS > 2
    if (n >= begin1 && n < begin2) width = begin2 - begin1;
    if (n >= begin2) to = dst2, at = n - begin2, width = N - begin2;
#endif
    const int o = (row + lane) * width + at;
#ifdef GATED
    STORE_T(to, o, POST(v[0], o) * v[1]);
#else
    STORE_T(to, o, POST(v[0], o));
#endif
  }
}
