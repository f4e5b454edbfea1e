// dst[b][j][i] = src[b][i][j] for i < rows, j < cols: a batch of transposed matrices.
//
// A group moves a tile of TILE x TILE elements by way of local memory, so that both sides are read and written in runs.
// NDRange: (cols rounded up to TILE, rows rounded up to TILE but TILE / STEP times fewer, b); local (TILE, STEP, 1).
//
// Tunables: TILE, STEP.
#ifndef T
#define T uint
#endif
#ifndef TILE
#define TILE 32
#endif
#ifndef STEP
#define STEP 8
#endif

__kernel __attribute__((reqd_work_group_size(TILE, STEP, 1)))
void reorder(__global const T* restrict src, __global T* restrict dst, int rows, int cols) {
  __local T tile[TILE][TILE + 1];  // one more, so that the elements of a column are in different banks
  const int lane = get_local_id(0), first = get_local_id(1);
  const int i = get_group_id(1) * TILE, j = get_group_id(0) * TILE;
  src += get_group_id(2) * (size_t)rows * cols;
  dst += get_group_id(2) * (size_t)rows * cols;
  for (int k = first; k < TILE; k += STEP)
    if (i + k < rows && j + lane < cols) tile[k][lane] = src[(i + k) * cols + j + lane];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = first; k < TILE; k += STEP)
    if (j + k < cols && i + lane < rows) dst[(j + k) * rows + i + lane] = tile[lane][k];
}
