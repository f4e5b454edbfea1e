// dst[n][c] = the steps of the mean of (src - ZERO) * SCALE over the pixels of channel c of image n, for 8-bit numbers.
//
// Real values are added in double, which is exact for them, divided, and rounded to float, as GlobalAveragePool does.
// A work item computes one channel. NDRange: (N * C, rounded up to the local size); SIZE is N * C. SIZES are arguments,
// so that all images share a program.
//
// Layout: src [N][PIXELS][C], or with PLAIN [N][C][PIXELS]. RESULT(s, o) makes element o of dst of the mean s.
#ifndef T
#define X uchar
#define T uchar
#define C 1
#define SIZES , const int SIZE, const int PIXELS
#define SCALE 1.0f
#define ZERO 0
#define RESULT(s, o) (s)
#define RESULT_ARGS
#endif

__kernel void quantized_mean(__global const X* restrict src, __global T* restrict dst SIZES RESULT_ARGS) {
  const int o = get_global_id(0);
  if (o >= SIZE) return;
#ifdef PLAIN
  const int first = o * PIXELS, step = 1;
#else
  const int first = o / C * PIXELS * C + o % C, step = C;
#endif
  double sum = 0;
#pragma unroll 7
  for (int p = 0; p < PIXELS; ++p) sum += (float)(src[first + p * step] - ZERO) * SCALE;
  dst[o] = RESULT((float)(sum / PIXELS), o);
}
