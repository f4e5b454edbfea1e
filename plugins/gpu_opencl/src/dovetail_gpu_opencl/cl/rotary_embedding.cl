// dst = src with the pairs of elements of each head turned; see rotation.cl.
//
// Element d of head h at position s of batch b is at b * X_B + h * X_H + s * X_S + d of src and dst. With HAS_IDS its angles are
// at row ids[b * SEQUENCE + s] of ANGLES, from the end if negative, else at row b * SEQUENCE + s, or s with SHARED. A row that is
// not there sets faults[fault].
// A work item computes an element, with BY_HEADS, for CPUs, a head. NDRange: (HEADS * SIZE, or HEADS, rounded up; SEQUENCE;
// batch).
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define HEADS 1
#define SIZE 2
#define SEQUENCE 1
#define ANGLES 1
#define PAIRS 1
#define X_B SIZE
#define X_H SIZE
#define X_S SIZE
#endif
#include "rotation.cl"
#ifndef BY_HEADS
#define BY_HEADS 0
#endif
#ifndef SHARED
#define SHARED 0
#endif
#ifdef INTERLEAVED
#define REAL(i) (2 * (i))
#define IMAGINARY(i) (2 * (i) + 1)
#else
#define REAL(i) (i)
#define IMAGINARY(i) ((i) + PAIRS)
#endif
#ifdef HAS_IDS
#define IDS_ARGS , __global const long *restrict ids
#define FAULT_ARGS , __global int *faults, const int fault
#else
#define IDS_ARGS
#define FAULT_ARGS
#endif

__kernel void rotary_embedding(__global const T* restrict src, __global const T* restrict cosines,
                               __global const T* restrict sines IDS_ARGS, __global T* restrict dst FAULT_ARGS) {
  const int e = get_global_id(0), s = get_global_id(1), b = get_global_id(2);
  if (e >= (BY_HEADS ? HEADS : HEADS * SIZE)) return;
#ifdef HAS_IDS
  const long id = ids[b * SEQUENCE + s];
  if (id < -ANGLES || id >= ANGLES) {
    faults[fault] = 1;
    return;
  }
  const int row = id < 0 ? id + ANGLES : id;
#else
  const int row = SHARED ? s : b * SEQUENCE + s;
#endif
#if BY_HEADS
  const int at = b * X_B + e * X_H + s * X_S;
  for (int i = 0; i < PAIRS; ++i) {
    const ACC real = LOAD_T(src, at + REAL(i)), other = LOAD_T(src, at + IMAGINARY(i));
    const ACC c = LOAD_T(cosines, row * PAIRS + i), sine = LOAD_T(sines, row * PAIRS + i);
    STORE_T(dst, at + REAL(i), real * c - other * sine);
    STORE_T(dst, at + IMAGINARY(i), other * c + real * sine);
  }
  for (int d = 2 * PAIRS; d < SIZE; ++d) STORE_T(dst, at + d, (ACC)LOAD_T(src, at + d));
#else
  const int at = b * X_B + e / SIZE * X_H + s * X_S, d = e % SIZE;
  STORE_T(dst, at + d, TURNED(src + at, d, cosines, sines, row * PAIRS));
#endif
}
