// Writes new keys, turned, and values into the caches, and the turned queries, where there are angles, to
// [batch][QUERIES][HEADS][D].
//
// A work item takes an element of a head: of the queries (with TURN_QUERIES), then of the keys, then of the values.
// NDRange: (OF_QUERIES + KV * (D + DV), rounded up; QUERIES; batch).
//
// Layout: see heads.cl and new_rows.cl.
#include "heads.cl"
#include "rotation.cl"
#include "new_rows.cl"
#ifdef TURN_QUERIES
#define TURNED_ARGS , __global const T *restrict q, __global T *restrict turned
#define OF_QUERIES (HEADS * D)
#else
#define TURNED_ARGS
#define OF_QUERIES 0
#endif

__kernel void cached_attention_write(__global const T* restrict new_k, __global const T* restrict new_v, __global T* restrict k,
                                     __global T* restrict v TURNED_ARGS ROTATION_ARGS LENGTHS_ARG FAULT_ARGS) {
  const int e = get_global_id(0), i = get_global_id(1), b = get_global_id(2);
  if (e >= OF_QUERIES + KV * (D + DV)) return;
  if (IS_WRONG(b, i)) {
    SET_FAULT;
    return;
  }
#ifdef TURN_QUERIES
  if (e < OF_QUERIES) {
    __global const T* x = q + b * Q_B + e / D * Q_H + i * Q_S;
    STORE_T(turned, (b * QUERIES + i) * OF_QUERIES + e, TURNED(x, e % D, cosines, sines, ANGLE(b, i)));
    return;
  }
#endif
  const int of_keys = e - OF_QUERIES, of_values = of_keys - KV * D, at = FIRST(b) + i;
  if (of_values < 0) {
    const int head = of_keys / D, d = of_keys % D;
    __global const T* x = new_k + b * NK_B + i * NK_S + head * NK_H + NK_AT;
    STORE_T(k, b * K_B + head * K_H + at * K_S + d, TURNED(x, d, cosines, sines, ANGLE(b, i)));
  } else {
    const int head = of_values / DV, d = of_values % DV;
    STORE_T(v, b * V_B + head * V_H + at * V_S + d, LOAD_T(new_v, b * NV_B + i * NV_S + head * NV_H + NV_AT + d));
  }
}
