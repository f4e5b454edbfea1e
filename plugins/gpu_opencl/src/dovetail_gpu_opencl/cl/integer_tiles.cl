// Products of tiles of bytes for integer_rows.cl, which includes this file: by the tile registers of x86 CPUs (AMX), eight of 16
// lines of 64 bytes. Registers 0 to 3 hold sums (16 pixels by 16 channels each, two by two), 4 and 5 pixels, 6 and 7 weights. No
// compiler has to know the instructions, which are written as bytes; the addresses of memory are in RAX and RCX.
//
// With PLAIN_TILES the same in C.
#ifndef X
#define X uchar
#define W char
#define ROWS 32
#define COLS 16
#define PLAIN_TILES
#endif
typedef struct {
  uchar palette, start, reserved[14];
  ushort bytes[16];
  uchar lines[16];
} SHAPES;
#define TILE 16
#define DEPTH 64

#ifdef PLAIN_TILES
#define ADDRESS(p) (p)
typedef const uchar* PIXELS_AT;
static void shape(const int rows) {}
static void release(void) {}

static void multiply(int* sums, const int wide, PIXELS_AT a, const int distance, __global const W* b, const int next,
                     const int steps, const int rows) {
  for (int c = 0; c < (wide ? 2 : 1); ++c)
    for (int r = 0; r < rows; ++r)
      for (int n = 0; n < COLS; ++n) {
        int sum = sums[(c * ROWS + r) * COLS + n];
        for (int k = 0; k < steps * DEPTH; ++k)
          sum += (int)(X)a[r * distance + k] * b[c * next + k / 4 * (4 * COLS) + 4 * n + k % 4];
        sums[(c * ROWS + r) * COLS + n] = sum;
      }
}
#else
#define ADDRESS(p) ((ulong)(p))
typedef ulong PIXELS_AT;
#define AT_TILE(prefix, code, at, distance) \
  __asm__ volatile(".byte 0xc4, 0xe2, " prefix ", 0x4b, " code ", 0x08" : : "a"(at), "c"((ulong)(distance)) : "memory")
#define LOAD_TILE(code, at, distance) AT_TILE("0x7b", code, at, distance)
#define STORE_TILE(code, at) AT_TILE("0x7a", code, at, 4 * COLS)
// Sums += pixels times weights, which are registers 6 or 7: pixels are char or uchar.
#define MULTIPLY(of_char, of_uchar, code)                                   \
  if ((X)-1 < 0)                                                            \
    __asm__ volatile(".byte 0xc4, 0xe2, " of_char ", 0x5e, " code : : :);   \
  else                                                                      \
    __asm__ volatile(".byte 0xc4, 0xe2, " of_uchar ", 0x5e, " code : : :)

static void shape(const int rows) {
  SHAPES shapes __attribute__((aligned(64)));
  const int first = min(rows, TILE), second = rows - first;
  for (int i = 0; i < 8; ++i) ((ulong*)&shapes)[i] = 0;
  shapes.palette = 1;
  for (int i = 0; i < 8; ++i) {
    const int lines = i >= 6 ? TILE : (i < 4 ? i >= 2 : i == 5) ? second : first;
    shapes.lines[i] = lines;
    shapes.bytes[i] = lines > 0 ? DEPTH : 0;
  }
  __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0x00" : : "a"((ulong)&shapes) : "memory");
}

static void release(void) { __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0" : : :); }

// sums[0][rows][COLS] and, if wide, sums[1][ROWS][COLS] += the products of `steps` times DEPTH bytes of each row, `distance` from
// row to row, and weights, those of the second block `next` elements behind.
static void multiply(int* sums, const int wide, PIXELS_AT a, const int distance, __global const W* b, const int next,
                     const int steps, const int rows) {
  const ulong c = (ulong)sums;
  const int both = rows > TILE;
  LOAD_TILE("0x04", c, 4 * COLS);
  if (both) LOAD_TILE("0x14", c + 4 * TILE * COLS, 4 * COLS);
  if (wide) LOAD_TILE("0x0c", c + 4 * ROWS * COLS, 4 * COLS);
  if (wide && both) LOAD_TILE("0x1c", c + 4 * (ROWS + TILE) * COLS, 4 * COLS);
  for (int k = 0; k < steps; ++k, a += DEPTH, b += DEPTH * COLS) {
    LOAD_TILE("0x24", a, distance);
    LOAD_TILE("0x34", (ulong)b, 4 * COLS);
    MULTIPLY("0x4b", "0x49", "0xc4");
    if (wide) {
      LOAD_TILE("0x3c", (ulong)(b + next), 4 * COLS);
      MULTIPLY("0x43", "0x41", "0xcc");
    }
    if (both) {
      LOAD_TILE("0x2c", a + (ulong)(TILE * distance), distance);
      MULTIPLY("0x4b", "0x49", "0xd5");
      if (wide) MULTIPLY("0x43", "0x41", "0xdd");
    }
  }
  STORE_TILE("0x04", c);
  if (both) STORE_TILE("0x14", c + 4 * TILE * COLS);
  if (wide) STORE_TILE("0x0c", c + 4 * ROWS * COLS);
  if (wide && both) STORE_TILE("0x1c", c + 4 * (ROWS + TILE) * COLS);
}
#endif
