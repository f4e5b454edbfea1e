// New rows of the caches of attention (cached_attention_write.cl, attention_token*.cl). Needs heads.cl and rotation.cl.
//
// Element d of new key i, head h, batch b is at b * NK_B + i * NK_S + h * NK_H + NK_AT + d, of a value likewise with NV; in the
// caches they are written at position FIRST(b) + i. Angles: cosines and sines [ANGLES][PAIRS], at row ids[b * QUERIES + i] with
// HAS_IDS, else at the position, at most at the last row.
//
// A count of keys below 1 or above TOTAL, and an id that is not a row, set faults[fault]; the caches stay as they are.
//
// CACHE, NEW_ARGS and NEW_FAULT_ARGS are arguments of kernels that write new rows with NEW only.
#ifndef KV
#define KV 1
#define NK_B 0
#define NK_S D
#define NK_H D
#define NK_AT 0
#define NV_B 0
#define NV_S DV
#define NV_H DV
#define NV_AT 0
#endif
#if PAIRS > 0 && defined(HAS_IDS)
#define ROTATION_ARGS                                                                                          \
  , __global const T *restrict cosines, __global const T *restrict sines, __global const long *restrict ids
#define ID(b, i) ids[(b) * QUERIES + (i)]
#define ANGLE(b, i) ((int)(ID(b, i) < 0 ? ID(b, i) + ANGLES : ID(b, i)) * PAIRS)
#define IS_ROW(b, i) (ID(b, i) >= -ANGLES && ID(b, i) < ANGLES)
#elif PAIRS > 0
#define ROTATION_ARGS , __global const T *restrict cosines, __global const T *restrict sines
#define ANGLE(b, i) (min(FIRST(b) + (i), ANGLES - 1) * PAIRS)
#define IS_ROW(b, i) 1
#else
#define ROTATION_ARGS
#define ANGLE(b, i) 0
#define IS_ROW(b, i) 1
#endif
#ifdef LENGTH_T
#define FAULT_ARGS , __global int *faults, const int fault
#define IS_WRONG(b, i) (COUNT(b) < 1 || COUNT(b) > TOTAL || !IS_ROW(b, i))
#define SET_FAULT faults[fault] = 1
#else
#define FAULT_ARGS
#define IS_WRONG(b, i) 0
#define SET_FAULT
#endif
#ifdef NEW
#define NEW_ARGS , __global const T *restrict new_k, __global const T *restrict new_v
#define NEW_FAULT_ARGS FAULT_ARGS
#define CACHE __global T*
#else
#define NEW_ARGS
#define NEW_FAULT_ARGS
#define CACHE __global const T* restrict
#endif
