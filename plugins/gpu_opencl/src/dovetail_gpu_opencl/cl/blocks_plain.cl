// A matrix [K][N] in blocks as MatMulBlocks has it: q * scale + offset, with one scale and offset for each column of a block.
//
// Layout: q [blocks * HEIGHT][N] of Q; scales and with HAS_OFFSETS offsets [blocks][N]. A block is SIZE rows of the matrix. With
// BITS 4 the low bits of its row r in q are row r, the high bits row r + HEIGHT. Q is uchar or char with WHOLE, else ushort: the
// bits of halves, or with Q_BFLOAT16 of bfloat16.
#ifndef BITS
#define BITS 4
#define SIZE 32
#define HEIGHT 16
#define Q uchar
#define WHOLE
#define HAS_OFFSETS
#endif
#ifdef HAS_OFFSETS
#define MATRIX_ARGS __global const Q* restrict q, __global const float* restrict scales, __global const float* restrict offsets
#else
#define MATRIX_ARGS __global const Q* restrict q, __global const float* restrict scales
#endif
// Number i as float, or a byte.
#ifdef WHOLE
#define LOAD_Q(p, i) ((p)[i])
#elif defined(Q_BFLOAT16)
#define LOAD_Q(p, i) as_float((uint)(p)[i] << 16)
#else
#define LOAD_Q(p, i) vload_half(i, (__global const half*)(p))
#endif
