// dst[DST(o) + j * DST_ROW + i * DST_COLUMN] = src[SRC(o) + j * SRC_ROW + i * SRC_COLUMN] for o < SIZE, j < ROWS, i < COLUMNS:
// moves elements between two strided places, for CPUs.
//
// A work item moves a tile of up to TILE x TILE elements, whose places are found once. NDRange: (SIZE, rounded up to the local
// size; ceil(ROWS / TILE); ceil(COLUMNS / TILE)).
//
// SRC(o) and DST(o) are expressions of the number o of a matrix and of the arguments SIZES, of which all other names are, too.
//
// Tunables: the local size; TILE; SHORT, the columns below which the loop over rows is the inner one.
#ifndef T
#define T uint
#define SIZE 1
#define ROWS 1
#define COLUMNS 1
#define SRC_ROW 1
#define SRC_COLUMN 1
#define DST_ROW 1
#define DST_COLUMN 1
#define SRC(o) (o)
#define DST(o) (o)
#define SIZES
#endif
#ifndef TILE
#define TILE 64
#endif
#define SHORT 8

__kernel void copy_tiles(__global const T* restrict src, __global T* restrict dst SIZES) {
  const int o = get_global_id(0), j0 = get_global_id(1) * TILE, i0 = get_global_id(2) * TILE;
  if (o >= SIZE) return;
  const int rows = min(TILE, ROWS - j0), columns = min(TILE, COLUMNS - i0);
  src += SRC(o) + j0 * SRC_ROW + i0 * SRC_COLUMN;
  dst += DST(o) + j0 * DST_ROW + i0 * DST_COLUMN;
  if (columns < SHORT) {
    for (int i = 0; i < columns; ++i)
      for (int j = 0; j < rows; ++j) dst[j * DST_ROW + i * DST_COLUMN] = src[j * SRC_ROW + i * SRC_COLUMN];
  } else {
    for (int j = 0; j < rows; ++j)
      for (int i = 0; i < columns; ++i) dst[j * DST_ROW + i * DST_COLUMN] = src[j * SRC_ROW + i * SRC_COLUMN];
  }
}
