// dst = -src at the class of each target, times its weight; REDUCED: their sum, with MEAN divided by the sum of the weights.
//
// A work item computes a target, or with REDUCED one work group of GROUP items all of them, over local memory.
// NDRange: (size, rounded up to the local size), or (GROUP) with local size GROUP, a power of two.
//
// Layout: src [N][classes][inner], target [N][inner]; weight [classes] may be NULL. Targets equal to IGNORED count nothing;
// others that are not a class are taken as 0 and set faults[fault] to 1.
//
// Tunables: GROUP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define INDEX long
#define REDUCED
#define MEAN
#endif
#ifndef GROUP
#define GROUP 1
#endif

__kernel void negative_log_likelihood_loss(__global const T* restrict src, __global const INDEX* restrict target,
                                           __global const T* weight, __global T* restrict dst, const int size,
                                           const int classes, const int inner, __global int* faults, const int fault) {
  ACC sum = 0, weights = 0;
#ifdef REDUCED
  const int lane = get_local_id(0);
  for (int o = lane; o < size; o += GROUP) {
#else
  const int o = get_global_id(0);
  if (o < size) {
#endif
    INDEX at = target[o];
    ACC own = 1;
#ifdef IGNORED
    const int counts = at != IGNORED;
#else
    const int counts = 1;
#endif
    const int wrong = counts && (at < 0 || at >= classes);
    if (wrong) faults[fault] = 1;
    if (wrong || !counts) at = 0;
    if (weight) own = LOAD_T(weight, at);
    const ACC loss = -(ACC)LOAD_T(src, (o / inner * classes + (int)at) * inner + o % inner) * own;
    sum += counts ? loss : (ACC)0;
    weights += counts ? own : (ACC)0;
#ifndef REDUCED
    STORE_T(dst, o, sum);
#endif
  }
#ifdef REDUCED
#if GROUP > 1
  __local ACC sums[GROUP], parts[GROUP];
  sums[lane] = sum;
  parts[lane] = weights;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int n = GROUP / 2; n > 0; n /= 2) {
    if (lane < n) {
      sums[lane] += sums[lane + n];
      parts[lane] += parts[lane + n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  sum = sums[0];
  weights = parts[0];
#endif
#ifdef MEAN
  sum /= weights;
#endif
  if (lane == 0) STORE_T(dst, 0, sum);
#endif
}
