// A matrix in blocks as mat_mul_blocks_row.cl and mat_mul_blocks_rows.cl read it, for CPUs.
//
// The matrix [K][N] is q * scale + offset, with one scale and offset for each column of a block of SIZE rows. It is packed as
// [ceil(N / COLS)][blocks][BLOCK] bytes, padded with zeros; in a block first COLS scales of P_BYTES bytes, with HAS_OFFSETS COLS
// offsets, then HEIGHT rows of COLS numbers of Q. With BITS 4 the low bits of row r are row r of the block, the high bits row
// r + HEIGHT.
//
// VEC columns are a vector, COLS = VECTORS * VEC. Parameters are halves, which are finite, or floats. Q is uchar or char with
// WHOLE, else ushort: the bits of halves, or with Q_BFLOAT16 of bfloat16.
#ifndef BITS
#define BITS 4
#define SIZE 32
#define Q uchar
#define WHOLE
#define P_BYTES 2
#define HAS_OFFSETS
#endif
#ifndef VEC
#define VEC 8
#define VECTORS 4
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define VF CAT(float, VEC)
#define VI CAT(int, VEC)
#define COLS (VECTORS * VEC)
#if BITS == 4
#define HEIGHT (SIZE / 2)
#else
#define HEIGHT SIZE
#endif
#ifdef HAS_OFFSETS
#define PARAMETERS (2 * COLS * P_BYTES)
#else
#define PARAMETERS (COLS * P_BYTES)
#endif
#ifdef WHOLE
#define ROW_BYTES COLS
#else
#define ROW_BYTES (2 * COLS)
#endif
#define BLOCK (PARAMETERS + HEIGHT * ROW_BYTES)
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  VF v;
} PACKED_F;
typedef struct __attribute__((packed)) {
  CAT(ushort, VEC) v;
} PACKED_S;
#ifdef WHOLE
typedef struct __attribute__((packed)) {
  CAT(Q, VEC) v;
} PACKED_Q;
#endif

// Finite halves as floats: the exponent's bias differs by 112.
static inline VF halves(__global const uchar* p) {
  const VI bits = CAT(convert_int, VEC)(CAT(as_short, VEC)(((__global const PACKED_S*)p)->v));
  return CAT(as_float, VEC)((bits << 13) & (int)0x8fffe000) * 0x1p112f;
}

// The parameter of vector v.
#if P_BYTES == 2
#define PARAMETER(p, v) halves((p) + 2 * VEC * (v))
#else
#define PARAMETER(p, v) (((__global const PACKED_F*)((p) + 4 * VEC * (v)))->v)
#endif

// Vector v of a row of numbers: whole numbers as int, with BITS 4 both of a byte, or floats.
#ifdef WHOLE
#define NUMBERS(p, v) CAT(convert_int, VEC)(((__global const PACKED_Q*)((p) + VEC * (v)))->v)
#elif defined(Q_BFLOAT16)
#define NUMBERS(p, v) \
  CAT(as_float, VEC)(CAT(convert_uint, VEC)(((__global const PACKED_S*)((p) + 2 * VEC * (v)))->v) << 16)
#else
#define NUMBERS(p, v) CAT(vload_half, VEC)(0, (__global const half*)((p) + 2 * VEC * (v)))
#endif
