// dst[o] = VALUE(o), for elements that are dequantized, computed with and quantized again one by one.
//
// A work item computes RUN elements. NDRange: (size / RUN, rounded up to the local size).
//
// Layout: all dense and alike. VALUE(o) is element o of the result, VALUES(o) eight from there on; RESULT_ARGS
// is what they read. Both are generated (quantized.py).
//
// Tunables: RUN, the local size.
#ifndef T
#define T uchar
#define RESULT_ARGS
#define VALUE(o) 0
#define VALUES(o) ((CAT(T, 8))(0))
#endif
#ifndef RUN
#define RUN 1
#endif
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
// Not vstore: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  CAT(T, 8) v;
} PACKED_T;

__kernel void quantized_elementwise(__global T* restrict dst, const int size RESULT_ARGS) {
  const int first = get_global_id(0) * RUN, last = min(first + RUN, size);
  int o = first;
  for (; o + 8 <= last; o += 8) ((__global PACKED_T*)(dst + o))->v = VALUES(o);
  for (; o < last; ++o) dst[o] = VALUE(o);
}
