// dst = past with update written along an axis from starts[b] on for each batch b, in words of 1 to 16 bytes.
//
// A work item moves one word. NDRange: (size, rounded up to the local size).
//
// Layout: past and dst dense [batch][middle][length][inner], update dense [batch][middle][count][inner]. starts may be NULL: 0.
// CIRCULAR: what goes beyond the end continues at the start. A start out of range sets faults[fault] to 1.
//
// Tunables: the local size.
#ifndef T
#define T uint
#endif

__kernel void tensor_scatter(__global const T* restrict past, __global const T* restrict update, __global const long* restrict starts,
                             __global T* restrict dst, const int size, const int middle, const int length, const int inner,
                             const int count, __global int* faults, const int fault) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int i = o % inner, t = o / inner % length, line = o / (inner * length);
  const long start = starts ? starts[line / middle] : 0;
#ifdef CIRCULAR
  const bool good = start >= 0 && start <= length;
  const int at = good ? (t - (int)start + length) % length : length;
#else
  const bool good = start >= 0 && start <= length - count;
  const int at = good ? t - (int)start : length;
#endif
  if (!good) faults[fault] = 1;
  dst[o] = at >= 0 && at < count ? update[(line * count + at) * inner + i] : past[o];
}
