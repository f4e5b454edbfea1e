// dst = data with updates at the places that an index says. One kernel for each step:
//
// Without a reduction (CLAIMS): scatter_start copies the data and forgets all claims; scatter_claim lets the last update of each
// place claim it (the largest number wins, in whatever order they come); scatter_put writes the updates whose claims were kept.
// With GROUP scatter_at_once does all of these in one work group.
// With one: scatter_widen copies the data into VALUEs; scatter_reduce joins the updates that may meet, one after the other, in
// one work item, or with GROUP in one work group, block by block: the updates of a block are sorted by place and number, and the
// item of a place's first one joins all in their order, so that results are the same; scatter_round makes Ts of VALUEs of another
// type. With PLACES scatter_places does all of these where all updates may meet: a group has PLACES places and COLUMNS elements
// of each. For a block of updates it marks, for each place, which ones go there, then the item of an element joins them in their
// order.
//
// With EACH > 1, for CPUs, an item of scatter_start and scatter_widen copies so many elements, and one of scatter_put an update; one
// of scatter_reduce joins RUN neighbours of each place.
//
// NDRange: (elements / EACH, updates, words of updates or updates, or lines * ceil(inner / RUN); rounded up to the local size), with GROUP
// (lines * inner * GROUP), with PLACES (ceil(places / PLACES) * GROUP, ceil(inner / COLUMNS)).
//
// Layout: places are slices of `inner` elements. With ELEMENTS, update u goes to its own place, but for the coordinate along one
// axis, which is index[u] below `bound`, of stride `step`: shape has the `rank` sizes of the updates, then the data's strides,
// that of the axis being 0. Otherwise index[u * step] and the next ones are `rank` coordinates: shape has their bounds, then
// their strides. Negative indices count from the end; an update out of range is left out and sets faults[fault] to 1.
//
// Tunables: the local size; GROUP; BLOCK, a power of two, updates; PLACES, COLUMNS.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define VALUE float
#define INDEX long
#define JOIN(a, b) ((a) + (b))
#define CLAIMS
#endif

#ifndef EACH
#define EACH 1
#endif
#ifndef RUN
#define RUN 1
#endif
#define RANGE                                     \
  if (get_global_id(0) > (size - 1) / EACH) return; \
  const int first = get_global_id(0) * EACH, end = first + min(EACH, size - first);

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
    const INDEX i = index[u * step + d];
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
  RANGE
  for (int o = first; o < end; ++o) dst[o] = data[o];
  for (int c = first / inner + (first % inner != 0); c <= (end - 1) / inner; ++c) claims[c] = -1;
}

__kernel void scatter_claim(PLACE_ARGS, __global int* claims, const int count) {
  const int u = get_global_id(0);
  if (u >= count) return;
  const int at = PLACE(u);
  if (at >= 0) atomic_max(claims + at, u);
}

__kernel void scatter_put(PLACE_ARGS, __global const int* restrict claims, __global const T* restrict updates,
                          __global T* restrict dst, const int count, const int inner) {
#if EACH > 1
  const int u = get_global_id(0), at = u < count ? PLACE(u) : -1;
  if (at < 0 || claims[at] != u) return;
  for (int i = 0; i < inner; ++i) dst[at * inner + i] = updates[u * inner + i];
#else
  const int o = get_global_id(0);
  if (o >= count * inner) return;
  const int u = o / inner, at = PLACE(u);
  if (at >= 0 && claims[at] == u) dst[at * inner + o % inner] = updates[o];
#endif
}

#ifdef GROUP
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void scatter_at_once(
    PLACE_ARGS, __local int* claims, __global const T* restrict data, __global const T* restrict updates, __global T* dst,
    const int size, const int count, const int inner) {
  const int item = get_local_id(0);
  for (int o = item; o < size; o += GROUP) dst[o] = data[o];
  for (int at = item; at < size / inner; at += GROUP) claims[at] = -1;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  for (int u = item; u < count; u += GROUP) {
    const int at = PLACE(u);
    if (at >= 0) atomic_max(claims + at, u);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int o = item; o < count * inner; o += GROUP) {
    const int u = o / inner, at = PLACE(u);
    if (at >= 0 && claims[at] == u) dst[at * inner + o % inner] = updates[o];
  }
}
#endif
#else
__kernel void scatter_widen(__global const T* restrict data, __global VALUE* restrict dst, const int size) {
  RANGE
  for (int o = first; o < end; ++o) dst[o] = LOAD_T(data, o);
}

#ifdef PLACES
#define PAIRS ((PLACES * COLUMNS + GROUP - 1) / GROUP)
#define WORDS (BLOCK / 32)
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void scatter_places(
    PLACE_ARGS, __global const T* restrict data, __global const T* restrict updates, __global T* restrict dst, const int places,
    const int size, const int inner) {
  __local uint marks[PLACES * WORDS] __attribute__((aligned(16)));
  const int item = get_local_id(0), first = get_group_id(0) * PLACES, left = get_group_id(1) * COLUMNS;
  VALUE values[PAIRS];
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) {
    const int pair = item + j * GROUP, at = first + pair / COLUMNS, column = left + pair % COLUMNS;
    values[j] = pair < PLACES * COLUMNS && at < places && column < inner ? LOAD_T(data, at * inner + column) : (VALUE)0;
  }
  for (int base = 0; base < size; base += BLOCK) {
    for (int i = item; i < PLACES * WORDS; i += GROUP) marks[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < BLOCK && base + i < size; i += GROUP) {
      const int at = PLACE(base + i);
      if (at >= first && at < first + PLACES) atomic_or(marks + (at - first) * WORDS + i / 32, 1u << i % 32);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const int pair = item + j * GROUP, at = first + pair / COLUMNS, column = left + pair % COLUMNS;
      if (pair >= PLACES * COLUMNS || at >= places || column >= inner) continue;
      for (int four = 0; four < WORDS; four += 4) {
        const uint4 found = *(__local const uint4*)(marks + pair / COLUMNS * WORDS + four);
        if (!(found.x | found.y | found.z | found.w)) continue;
        for (int w = 0; w < 4; ++w)
          for (uint bits = w == 0 ? found.x : w == 1 ? found.y : w == 2 ? found.z : found.w; bits; bits &= bits - 1) {
            const int u = base + (four + w) * 32 + 31 - clz(bits & -bits);
            const VALUE a = values[j], b = LOAD_T(updates, u * inner + column);
            values[j] = JOIN(a, b);
          }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) {
    const int pair = item + j * GROUP, at = first + pair / COLUMNS, column = left + pair % COLUMNS;
    if (pair < PLACES * COLUMNS && at < places && column < inner) STORE_T(dst, at * inner + column, values[j]);
  }
}
#elif defined(GROUP)
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void scatter_reduce(
    PLACE_ARGS, __global const T* restrict updates, __global VALUE* dst, const int lines, const int size, const int apart,
    const int inner) {
  __local ulong keys[BLOCK];
  __local VALUE given[BLOCK];
  const int item = get_local_id(0), o = get_group_id(0), line = o / inner, first = line / apart * (size * apart) + line % apart;
  for (int base = 0; base < size; base += BLOCK) {
    for (int i = item; i < BLOCK; i += GROUP) {
      const int at = base + i < size ? PLACE(first + (base + i) * apart) : -1;
      keys[i] = (ulong)(uint)at << 32 | i;
    }
    // Bitonic: pairs of one step are apart, and each is of one item.
    for (int span = 2; span <= BLOCK; span *= 2)
      for (int far = span / 2; far > 0; far /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = item; i < BLOCK / 2; i += GROUP) {
          const int low = 2 * i - (i & (far - 1)), high = low + far;  // far is a power of two, and divisions take long
          const ulong a = keys[low], b = keys[high];
          if ((a > b) == !(low & span)) {
            keys[low] = b;
            keys[high] = a;
          }
        }
      }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < BLOCK; i += GROUP)
      if ((int)(keys[i] >> 32) >= 0)
        given[i] = LOAD_T(updates, (first + (base + (int)(uint)keys[i]) * apart) * inner + o % inner);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < BLOCK; i += GROUP) {
      const int at = keys[i] >> 32;
      if (at < 0 || (i && (int)(keys[i - 1] >> 32) == at)) continue;
      VALUE value = dst[at * inner + o % inner];
      for (int k = i; k < BLOCK && (int)(keys[k] >> 32) == at; ++k) value = JOIN(value, given[k]);
      dst[at * inner + o % inner] = value;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
}
#else
__kernel void scatter_reduce(PLACE_ARGS, __global const T* restrict updates, __global VALUE* restrict dst, const int lines,
                             const int size, const int apart, const int inner) {
  const int runs = (inner - 1) / RUN + 1, line = get_global_id(0) / runs, left = get_global_id(0) % runs * RUN;
  if (line >= lines) return;
  const int first = line / apart * (size * apart) + line % apart, columns = min(RUN, inner - left);
  for (int n = 0; n < size; ++n) {
    const int u = first + n * apart, at = PLACE(u);
    if (at < 0) continue;
    for (int i = left; i < left + columns; ++i) {
      const VALUE a = dst[at * inner + i], b = LOAD_T(updates, u * inner + i);
      dst[at * inner + i] = JOIN(a, b);
    }
  }
}
#endif

__kernel void scatter_round(__global const VALUE* restrict src, __global T* restrict dst, const int size) {
  const int o = get_global_id(0);
  if (o < size) STORE_T(dst, o, src[o]);
}
#endif
