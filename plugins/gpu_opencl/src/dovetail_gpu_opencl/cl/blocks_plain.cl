// A matrix [K][N] in blocks as MatMulBlocks has it: q * scale + offset, with one scale and offset for each column of a block.
//
// Layout: q [blocks * HEIGHT][N] of Q; scales and with HAS_OFFSETS offsets [blocks][N]. A block is SIZE rows of the matrix. With
// BITS 4 the low bits of its row r in q are row r, the high bits row r + HEIGHT. Q is uchar or char with WHOLE, else ushort: the
// bits of halves, or with Q_BFLOAT16 of bfloat16. With TOGETHER one buffer holds q, scales and offsets, each from a multiple of
// 64 bytes on: NVIDIA's driver takes 0.3 us for each argument of a launch. The matrix has K rows then.
#ifndef BITS
#define BITS 4
#define SIZE 32
#define HEIGHT 16
#define Q uchar
#define WHOLE
#define HAS_OFFSETS
#endif
#ifdef TOGETHER
#define FROM_64(bytes) (((bytes) + 63) / 64 * 64)
#define SCALES_AT(columns) FROM_64((size_t)((K + SIZE - 1) / SIZE * HEIGHT) * (columns) * sizeof(Q))
#define OFFSETS_AT(columns) (SCALES_AT(columns) + FROM_64((size_t)((K + SIZE - 1) / SIZE) * (columns) * sizeof(float)))
#define Q_OF(matrix) ((__global const Q*)(matrix))
#define SCALES_OF(matrix, columns) ((__global const float*)((matrix) + SCALES_AT(columns)))
#define OFFSETS_OF(matrix, columns) ((__global const float*)((matrix) + OFFSETS_AT(columns)))
#define MATRIX_ARGS __global const uchar* restrict matrix
#define MATRIX_Q Q_OF(matrix)
#define MATRIX_SCALES SCALES_OF(matrix, N)
#define MATRIX_OFFSETS OFFSETS_OF(matrix, N)
#else
#define MATRIX_Q q
#define MATRIX_SCALES scales
#define MATRIX_OFFSETS offsets
#ifdef HAS_OFFSETS
#define MATRIX_ARGS __global const Q* restrict q, __global const float* restrict scales, __global const float* restrict offsets
#else
#define MATRIX_ARGS __global const Q* restrict q, __global const float* restrict scales
#endif
#endif
// Number i as float, or a byte.
#ifdef WHOLE
#define LOAD_Q(p, i) ((p)[i])
#elif defined(Q_BFLOAT16)
#define LOAD_Q(p, i) as_float((uint)(p)[i] << 16)
#else
#define LOAD_Q(p, i) vload_half(i, (__global const half*)(p))
#endif
