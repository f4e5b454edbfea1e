// Matrices of 8-bit numbers as tiles_pipelined.cl reads a second factor: row n of dst has column n of src less ZERO. Differences
// beyond int8 are sums of PARTS numbers of int8, as equal as can be, one part behind the other; zeros follow.
//
// sums has the sum of each column less ZERO, times FACTOR.
// A work group takes 32 columns, an item of it every eighth 16 elements of one. NDRange: (matrices * N / 32, rounded up, * 32, 8),
// local size (32, 8). K, N, ROW, ZERO and FACTOR are among the arguments SIZES.
//
// Layout: src [matrices][K][N]; dst [matrices][N][ROW] in 16 bytes, where a part has K / 16, rounded up; sums [matrices][N].
#ifndef X
#define X uchar
#define PARTS 2
#define SIZES , const int K, const int N, const int ROW, const int ZERO, const int FACTOR
#endif

__kernel void bytes_transposed(__global const X* restrict src, __global uint4* restrict dst, __global int* restrict sums SIZES) {
  __local int part[8][32];
  const int lx = get_local_id(0), ly = get_local_id(1), tiles = (N + 31) / 32, depth = (K + 15) / 16;
  const int z = get_group_id(0) / tiles, n = get_group_id(0) % tiles * 32 + lx;
  int sum = 0;
  for (int c = ly; c < ROW && n < N; c += 8) {
    const int p = c / depth, first = c % depth * 16, end = p < PARTS ? min(16, K - first) : 0;
    uint v[4] = {0, 0, 0, 0};
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      if (e >= end) continue;
      const int x = src[(z * K + first + e) * N + n] - ZERO;
      if (p == 0) sum += x;
      v[e / 4] |= (uint)(((x + p + PARTS * 256) / PARTS - 256) & 255) << e % 4 * 8;
    }
    dst[(z * N + n) * ROW + c] = (uint4)(v[0], v[1], v[2], v[3]);
  }
  part[ly][lx] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (ly || n >= N) return;
  for (int i = 1; i < 8; ++i) sum += part[i][lx];
  sums[z * N + n] = sum * FACTOR;
}
