// dst[batch, outer, start + i, inner] = update[batch, outer, i, inner], where start is the batch's write index (0 without
// indices).
//
// A work item takes an element of the update, [batch][outer][count][inner]; the rest of dst, [batch][outer][length][inner], is
// there.
// With CIRCULAR what goes beyond the end continues at the start. An index outside 0 .. length - count (CIRCULAR: .. length) sets
// faults[fault], and the update is left out.
// NDRange: (size of the update, rounded up).
#ifndef T
#define T uint
#endif

__kernel void tensor_scatter(__global const T* restrict update, __global const long* restrict indices, __global T* restrict dst,
                             const int size, const int outer, const int length, const int inner, const int count,
                             __global int* faults, const int fault) {
  const int e = get_global_id(0);
  if (e >= size) return;
  const int line = e / inner / count, i = e / inner % count;
  const long start = indices ? indices[line / outer] : 0;
#ifdef CIRCULAR
  const int is_wrong = start < 0 || start > length;
#else
  const int is_wrong = start < 0 || start > length - count;
#endif
  if (is_wrong) {
    faults[fault] = 1;
    return;
  }
  const int at = ((int)start + i) % length;
  dst[((size_t)line * length + at) * inner + e % inner] = update[e];
}
