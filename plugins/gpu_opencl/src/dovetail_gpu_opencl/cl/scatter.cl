// dst = data with updates at the places that an index says. One kernel for each step:
//
// Without a reduction (CLAIMS): scatter_start copies the data and forgets all claims; scatter_claim lets the last update of each place
// claim it (the largest number wins, in whatever order they come); scatter_put writes the updates whose claims were kept.
// With one: scatter_widen copies the data into VALUEs; scatter_reduce joins the updates that may meet, one after the other, in one
// work item, or with GROUP in one work group, block by block: of the updates of a place in a block, the first one's item joins all in
// their order, so that results are the same; scatter_round makes Ts of VALUEs of another type.
//
// NDRange: (elements, updates, words of updates, or lines * inner; rounded up to the local size), with GROUP (lines * inner * GROUP).
//
// Layout: places are slices of `inner` elements. With ELEMENTS, update u goes to its own place, but for the coordinate along one axis,
// which is index[u] below `bound`, of stride `step`: shape has the `rank` sizes of the updates, then the data's strides, that of the
// axis being 0. Otherwise index[u] has `rank` coordinates: shape has their bounds, then their strides. Negative indices count from the
// end; an update out of range is left out and sets faults[fault] to 1.
//
// Tunables: the local size; GROUP, a multiple of 4.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define VALUE float
#define INDEX long
#define JOIN(a, b) ((a) + (b))
#define CLAIMS
#endif

#define PLACE_ARGS \
  __global const INDEX *restrict index, __global const int *restrict shape, const int rank, const int bound, const int step, \
      __global int *faults, const int fault
#define PLACE(u) place(u, index, shape, rank, bound, step, faults, fault)

static int place(int u, PLACE_ARGS) {
  int at = 0;
#ifdef ELEMENTS
  INDEX i = index[u];
  int wrong = i < -bound || i >= bound;
  at = (int)(i < 0 ? i + bound : i) * step;
  for (int d = rank - 1, rest = u; d >= 0; rest /= shape[d--]) at += rest % shape[d] * shape[rank + d];
#else
  int wrong = 0;
  for (int d = 0; d < rank; ++d) {
    const INDEX i = index[u * rank + d];
    wrong |= i < -shape[d] || i >= shape[d];
    at += (int)(i < 0 ? i + shape[d] : i) * shape[rank + d];
  }
#endif
  if (wrong) faults[fault] = 1;
  return wrong ? -1 : at;
}

#ifdef CLAIMS
__kernel void scatter_start(__global const T* restrict data, __global T* restrict dst, __global int* restrict claims,
                            const int size, const int inner) {
  const int o = get_global_id(0);
  if (o >= size) return;
  dst[o] = data[o];
  if (o % inner == 0) claims[o / inner] = -1;
}

__kernel void scatter_claim(PLACE_ARGS, __global int* claims, const int count) {
  const int u = get_global_id(0);
  if (u >= count) return;
  const int at = PLACE(u);
  if (at >= 0) atomic_max(claims + at, u);
}

__kernel void scatter_put(PLACE_ARGS, __global const int* restrict claims, __global const T* restrict updates,
                          __global T* restrict dst, const int count, const int inner) {
  const int o = get_global_id(0);
  if (o >= count * inner) return;
  const int u = o / inner, at = PLACE(u);
  if (at >= 0 && claims[at] == u) dst[at * inner + o % inner] = updates[o];
}
#else
__kernel void scatter_widen(__global const T* restrict data, __global VALUE* restrict dst, const int size) {
  const int o = get_global_id(0);
  if (o < size) dst[o] = LOAD_T(data, o);
}

#ifdef GROUP
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void scatter_reduce(
    PLACE_ARGS, __global const T* restrict updates, __global VALUE* dst, const int lines, const int size, const int apart,
    const int inner) {
  __local int4 places[GROUP / 4];
  __local VALUE given[GROUP];
  __local int* all = (__local int*)places;
  const int item = get_local_id(0), o = get_group_id(0), line = o / inner, first = line / apart * (size * apart) + line % apart;
  for (int base = 0; base < size; base += GROUP) {
    const int u = first + (base + item) * apart, at = base + item < size ? PLACE(u) : -1;
    all[item] = at;
    VALUE value = 0;
    if (at >= 0) {
      given[item] = LOAD_T(updates, u * inner + o % inner);
      value = dst[at * inner + o % inner];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    int owner = at >= 0;
    for (int i = 0; i < GROUP / 4; ++i) {
      const int4 found = places[i] == at;
      if (owner && any(found)) {
        const int same[4] = {found.x, found.y, found.z, found.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          owner &= !(same[k] && i * 4 + k < item);
          if (same[k] && owner) value = JOIN(value, given[i * 4 + k]);
        }
      }
    }
    if (owner) dst[at * inner + o % inner] = value;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
}
#else
__kernel void scatter_reduce(PLACE_ARGS, __global const T* restrict updates, __global VALUE* dst, const int lines,
                             const int size, const int apart, const int inner) {
  const int o = get_global_id(0);
  if (o >= lines * inner) return;
  const int line = o / inner, first = line / apart * (size * apart) + line % apart;
  for (int n = 0; n < size; ++n) {
    const int u = first + n * apart, at = PLACE(u);
    if (at < 0) continue;
    const VALUE a = dst[at * inner + o % inner], b = LOAD_T(updates, u * inner + o % inner);
    dst[at * inner + o % inner] = JOIN(a, b);
  }
}
#endif

__kernel void scatter_round(__global const VALUE* restrict src, __global T* restrict dst, const int size) {
  const int o = get_global_id(0);
  if (o < size) STORE_T(dst, o, src[o]);
}
#endif
