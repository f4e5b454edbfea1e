// dst = src with the first lens[b] steps of every sequence b turned round, in words of 1 to 16 bytes.
//
// A work item moves one word, with BY_STEPS, for CPUs, all of a step. NDRange: (size, which counts these, rounded up to the local
// size).
//
// Layout: src and dst [first][second][inner]; time_axis (0 or 1) is the axis of time, the other one that of the sequences. A
// length out of range is taken as 0 and sets faults[fault] to 1.
//
// Tunables: the local size.
#ifndef T
#define T uint
#endif
#ifdef BY_STEPS
#define WORDS 1
#else
#define WORDS inner
#endif

__kernel void reverse_sequence(__global const T* restrict src, __global const long* restrict lens, __global T* restrict dst,
                               const int size, const int first, const int second, const int inner, const int time_axis,
                               __global int* faults, const int fault) {
  const int o = get_global_id(0);
  if (o >= size) return;
  const int j = o / WORDS % second, k = o / (WORDS * second);
  const int t = time_axis ? j : k, steps = time_axis ? second : first;
  long length = lens[time_axis ? k : j];
  if (length < 0 || length > steps) {
    faults[fault] = 1;
    length = 0;
  }
  const int from = t < length ? (int)length - 1 - t : t;
  src += ((time_axis ? k : from) * second + (time_axis ? from : j)) * inner;
#ifdef BY_STEPS
  dst += o * inner;
  for (int n = 0; n < inner; ++n) dst[n] = src[n];
#else
  dst[o] = src[o % inner];
#endif
}
