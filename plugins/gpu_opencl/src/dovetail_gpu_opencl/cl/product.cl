// What the tiled products share (tiles.cl, tiles_matrix.cl): defaults, vectors of elements, and convolutions as products.
//
// With CONV k counts (ky, kx, c), with VOLUME (kz, ky, kx, c), n the output pixels of all images and z the groups.
//
// FENCE lets other work groups see what was written before, and an item what they wrote: OpenCL 1.2 has no such thing, NVIDIA's
// PTX has. With FOLD the splits of a tile count in counters, which are zeros before and after, who is the last.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define Z 1
#define M 1
#define N 1
#define K 1
#define A_M K
#define A_K 1
#define A_BATCH(z) 0
#define B_K N
#define B_N 1
#define B_BATCH(z) 0
#define RUN_V 1
#define SIZES
#endif
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define TILE_K 16
#define WORK_M 4
#define WORK_N 4
#define SLICES 1
#define SPLITS 1
#define BUFFERS 1
#define A_V 1
#define B_V 1
#endif
#define TILES ((int)(get_num_groups(0) * get_num_groups(1) * Z))
#define TILE_NUMBER ((z * (int)get_num_groups(1) + (int)get_group_id(1)) * (int)get_num_groups(0) + (int)get_group_id(0))
#ifndef FENCE
#define FENCE asm volatile("membar.gl;" ::: "memory")
#endif
#ifndef POST_ARGS
#define POST_ARGS
#define POST(s, o) (s)
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define WIDE_1(t) t
#define WIDE_2(t) CAT(t, 2)
#define WIDE_4(t) CAT(t, 4)
#define WIDE(t, v) CAT(WIDE_, v)(t)
#define CONVERT(t, v) CAT(convert_, WIDE(t, v))
// Vectors of v elements of T that are aligned as such, as ACC.
#ifdef T_IS_HALF
#define LOAD_1(p) vload_half(0, p)
#define LOAD_2(p) vloada_half2(0, p)
#define LOAD_4(p) vloada_half4(0, p)
#define STORE_1(p, x) vstore_half_rte(x, 0, p)
#define STORE_2(p, x) vstorea_half2_rte(x, 0, p)
#define STORE_4(p, x) vstorea_half4_rte(x, 0, p)
#define LOAD(v, p) CAT(LOAD_, v)(p)
#define STORE(v, p, x) CAT(STORE_, v)(p, x)
#elif defined(T_IS_BFLOAT16)
#define STORE_1(p, f) (*(p) = to_bfloat16(f))
#define STORE_2(p, f) (*(__global ushort2*)(p) = (ushort2)(to_bfloat16((f).x), to_bfloat16((f).y)))
#define STORE_4(p, f) \
  (*(__global ushort4*)(p) = (ushort4)(to_bfloat16((f).x), to_bfloat16((f).y), to_bfloat16((f).z), to_bfloat16((f).w)))
#define LOAD(v, p) CAT(as_, WIDE(float, v))(CONVERT(uint, v)(*(__global const WIDE(ushort, v)*)(p)) << 16)
#define STORE(v, p, x) CAT(STORE_, v)(p, x)
#else
#define LOAD(v, p) CONVERT(ACC, v)(*(__global const WIDE(T, v)*)(p))
#define STORE(v, p, x) (*(__global WIDE(T, v)*)(p) = CONVERT(T, v)(x))
#endif

// What changes with batches and the sizes of images is among the arguments SIZES: for matrices Z, M, A_MATRIX and B_MATRIX, the
// elements from one matrix to the next; for convolutions N, IH, IW, IMAGE = IH * IW, pads, and the divisors OW and P, the
// pixels of a result; with VOLUME ID and IMAGE = ID * IH * IW, too, and the divisor PLANE = OH * OW.
// RUN_V is the greatest common divisor of 4 and the results that follow each other in memory.
#include "quotients.cl"
#ifdef CONV
#ifdef VOLUME
#define K (C * KD * KH * KW)
#else
#define K (C * KH * KW)
#endif
#define Z GROUPS
#define A_M 1
#ifndef A_ROWS
#define A_ROWS K
#endif
#define A_BATCH(z) ((z) * A_ROWS * A_K)
#define MAPS (GROUPS * M)
#ifdef INNERMOST
#define DST(z, m, n) ((n) * MAPS + (z) * M + (m))
#else
#define DST(z, m, n) ((QUOTIENT(n, P) * MAPS + (z) * M + (m)) * P + REMAINDER(n, P))
#endif
#define BIAS_AT(z, m) ((z) * M + (m))
#else
#define DST(z, m, n) (((z) * M + (m)) * N + (n))
#define BIAS_AT(z, m) (m)
#endif

#if defined(HAS_BIAS)
#define BIAS_ARG , __global const T* restrict bia
#define BIAS(z, m) ((ACC)LOAD_T(bia, BIAS_AT(z, m)))
#else
#define BIAS_ARG
#define BIAS(z, m) ((ACC)0)
#endif
