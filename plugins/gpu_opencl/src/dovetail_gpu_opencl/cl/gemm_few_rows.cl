// dst[m][n] = post(sum over k of a[m][k] * wei[n][k]) for a few rows, for GPUs: such products take as long as it takes to read wei.
//
// LANES items add up a column together, eight elements at a time. NDRange: (ceil(N * LANES / GROUP) * GROUP), local size GROUP.
//
// Layout: a [ROWS][K] of As with a_m elements from row to row, wei [N][K] of Ws, dst dense [ROWS][N]. K and a_m are multiples of 8.
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

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gemm_few_rows(
    __global const A* restrict a, __global const W* restrict wei, __global T* dst, const int N, const int K, const int a_m POST_ARGS) {
  __local float part[ROWS][GROUP];
  const int item = get_local_id(0), lane = item % LANES, n = get_group_id(0) * (GROUP / LANES) + item / LANES;
  float4 sum[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; ++m) sum[m] = 0;
  __global const W* column = wei + (size_t)min(n, N - 1) * K;
#pragma unroll 4
  for (int k = lane * 8; k < K; k += LANES * 8) {
    const float8 w = READ_W(column + k);
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      const float8 x = READ_A(a + m * a_m + k);
      sum[m] += w.lo * x.lo;
      sum[m] += w.hi * x.hi;
    }
  }
#pragma unroll
  for (int m = 0; m < ROWS; ++m) part[m][item] = (sum[m].x + sum[m].y) + (sum[m].z + sum[m].w);
  for (int width = LANES / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < width) {
#pragma unroll
      for (int m = 0; m < ROWS; ++m) part[m][item] += part[m][item + width];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane < ROWS && n < N) {
    const int o = lane * N + n;
    STORE_T(dst, o, POST(part[lane][item - lane], o));
  }
}
