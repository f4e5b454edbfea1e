// RNN, GRU or LSTM (the macro of that name), in the directions from `direction` on, as many as the NDRanges have.
//
// project: gates[direction][t][n][row] = x[t][n] . wei[row] + bias[row], for all rows of all gates.
// recurrent: the states through time; y is 0 and the states stay as they are past the end of a sequence.
//
// NDRange: recurrent (batch * GROUP, directions), local size (GROUP, 1): a work group a sequence, whose items take the hidden
// units in turn. With GROUP > 1 eight items first add up a row of the product with the state together, and read neighbours of it.
// project (time * batch / STEPS * rows rounded up to the local size, directions), a work item a row for STEPS steps or sequences,
// which read the weights once, or with GROUP > 1 (rows / TILE, time * batch / TILE, directions), local size (SIDE, SIDE, 1), where
// a work group reads blocks of x and of the weights together.
//
// Layout: x [time][batch][width], wei [directions][rows][width], rec [directions][rows][hidden], bias [directions][2][rows], rows
// in the order of ONNX's gates; h0, c0, yh, yc [directions][batch][hidden]; y [time][directions][batch][hidden]; with batch_first
// the batch comes before all else in x, y and the states. bias, peep, lens, h0, c0, y, yh, yc may be NULL.
// states [directions][batch][4 * hidden, and with GROUP > 1 rows] is work space, which is not read where STATES is local memory.
//
// With MEMBERS, the work groups of recurrent_shared.cl that ran in between if it could: `project` writes zeros to the first
// CLEARED elements of `exchange`, and `recurrent` has nothing to do if the first of them counts all members.
//
// With ALL_FLOATS, that T, R and ACC are float, a single item of a group adds up in vectors. STEPS is then 4, else 1.
// With IN_SEQUENCES the kernel of recurrent_sequences.cl takes the place of `recurrent`.
//
// With WIDE > 1, which divides `hidden`, items read so many elements of R at once: FLOATS(p) gives them as a vector of floats.
//
// Tunables: GROUP, of at least 32 items or 1; SPACE and STATES, the memory of the states and their number there.
#include "halves.cl"
#ifndef T
#define T float
#define R float
#define LOAD_R(p, i) ((p)[i])
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#endif
#ifndef GROUP
#define GROUP 1
#endif
#if GROUP == 1 && defined(ALL_FLOATS)
#define STEPS 4
#else
#define STEPS 1
#endif
#include "recurrent_cell.cl"
#if GROUP > 1
#define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#else
#define SYNC
#endif
#ifndef SPACE
#define SPACE __global
#endif
#define LANES 8
#ifdef MEMBERS
#define EXCHANGE(type) , __global type* exchange
#else
#define EXCHANGE(type)
#endif

#if GROUP == 1
// Several sums side by side, so that a compiler may use vectors.
#define DOT(name, of_a, load_a, of_b, load_b)                                                        \
  static ACC name(__global const of_a* a, __global const of_b* b, int n) {                           \
    ACC part[LANES], sum = 0;                                                                        \
    for (int k = 0; k < LANES; ++k) part[k] = 0;                                                     \
    int i = 0;                                                                                       \
    for (; i + LANES <= n; i += LANES)                                                               \
      for (int k = 0; k < LANES; ++k) part[k] += (ACC)load_a(a, i + k) * (ACC)load_b(b, i + k);      \
    for (; i < n; ++i) sum += (ACC)load_a(a, i) * (ACC)load_b(b, i);                                 \
    for (int k = 0; k < LANES; ++k) sum += part[k];                                                  \
    return sum;                                                                                      \
  }
#define PLAIN(p, i) ((p)[i])
#ifdef ALL_FLOATS
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  float8 v;
} PACKED_FLOAT;
#define AT(p, i) (((__global const PACKED_FLOAT*)((p) + (i)))->v)
static float rest_of_floats(__global const float* a, __global const float* b, const int n, int i, float8 sum) {
  for (; i + 8 <= n; i += 8) sum += AT(a, i) * AT(b, i);
  const float4 half_sum = sum.lo + sum.hi;
  const float2 quarter = half_sum.lo + half_sum.hi;
  float whole = quarter.x + quarter.y;
  for (; i < n; ++i) whole += a[i] * b[i];
  return whole;
}
// Four sums side by side, because one has to wait for itself.
static float dot_of_floats(__global const float* a, __global const float* b, const int n) {
  float8 sum = 0, second = 0, third = 0, fourth = 0;
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    sum += AT(a, i) * AT(b, i);
    second += AT(a, i + 8) * AT(b, i + 8);
    third += AT(a, i + 16) * AT(b, i + 16);
    fourth += AT(a, i + 24) * AT(b, i + 24);
  }
  return rest_of_floats(a, b, n, i, (sum + second) + (third + fourth));
}
// The same sums for four vectors.
#define SUMS_OF(v) float8 v##0 = 0, v##1 = 0, v##2 = 0, v##3 = 0
#define ADD_FROM(j)                                      \
  {                                                      \
    const float8 factor = AT(a, i + 8 * j);              \
    p##j += factor * AT(b, i + 8 * j);                   \
    q##j += factor * AT(b + second, i + 8 * j);          \
    r##j += factor * AT(b + third, i + 8 * j);           \
    s##j += factor * AT(b + fourth, i + 8 * j);          \
  }
#define WHOLE(v, from) rest_of_floats(a, from, n, i, (v##0 + v##1) + (v##2 + v##3))
static float4 dots_of_floats(__global const float* a, __global const float* b, const int second, const int third,
                             const int fourth, const int n) {
  SUMS_OF(p);
  SUMS_OF(q);
  SUMS_OF(r);
  SUMS_OF(s);
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    ADD_FROM(0)
    ADD_FROM(1)
    ADD_FROM(2)
    ADD_FROM(3)
  }
  return (float4)(WHOLE(p, b), WHOLE(q, b + second), WHOLE(r, b + third), WHOLE(s, b + fourth));
}
#define dot_of_x dot_of_floats
#define dot_of_h dot_of_floats
#else
DOT(dot_of_x, T, LOAD_T, T, LOAD_T)
DOT(dot_of_h, R, LOAD_R, ACC, PLAIN)
#endif

__kernel void project(__global const T* restrict x, __global const T* restrict wei, __global const T* bias,
                      __global ACC* restrict gates, const int time, const int batch, const int width, const int hidden,
                      const int direction, const int directions, const int batch_first) {
  const int o = get_global_id(0), rows = GATES * hidden, of = direction + get_global_id(1);
  const int row = o % rows, first = o / rows * STEPS, count = min(STEPS, time * batch - first);
  if (count <= 0) return;
  __global const T* const weights = wei + (of * rows + row) * width;
  const ACC offset = bias ? (ACC)LOAD_T(bias, of * 2 * rows + row) : (ACC)0;
  __global ACC* const to = gates + (get_global_id(1) * time * batch + first) * rows + row;
#define X_OF(s) (x + (batch_first ? (s) % batch * time + (s) / batch : (s)) * width)
#ifdef ALL_FLOATS
  if (count == STEPS) {
    __global const float* const b = X_OF(first);
    const float4 sums = dots_of_floats(weights, b, X_OF(first + 1) - b, X_OF(first + 2) - b, X_OF(first + 3) - b, width);
    to[0] = sums.x + offset;
    to[rows] = sums.y + offset;
    to[2 * rows] = sums.z + offset;
    to[3 * rows] = sums.w + offset;
    return;
  }
#endif
  for (int k = 0; k < count; ++k) to[k * rows] = dot_of_x(weights, X_OF(first + k), width) + offset;
}

#define FROM(row, vector) (dot_of_h(r + (row) * hidden, vector, hidden) + BIAS(row))
#define ADD_UP(first, end, vector)
#else
#define SIDE 16
// Rows and steps of a work group, TILE by TILE an item.
#define TILE 2
#define BLOCK (SIDE * TILE)

__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void project(
    __global const T* restrict x, __global const T* restrict wei, __global const T* bias, __global ACC* restrict gates,
    const int time,
    const int batch, const int width, const int hidden, const int direction, const int directions, const int batch_first
        EXCHANGE(ulong)) {
  __local ACC xs[BLOCK][SIDE + 1], ws[BLOCK][SIDE + 1];
  const int i = get_local_id(0), j = get_local_id(1), rows = GATES * hidden, of = direction + get_global_id(2);
  const int first_row = get_group_id(0) * BLOCK, first_step = get_group_id(1) * BLOCK, steps = time * batch;
#ifdef MEMBERS
  const int items = get_global_size(0) * get_global_size(1) * get_global_size(2);
  const int item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  for (int at = item; at < CLEARED; at += items) exchange[at] = 0;
#endif
  // The rows of the weights and the steps of which this item reads elements for its work group.
  __global const T *w[TILE], *from[TILE];
  ACC sum[TILE][TILE];
#pragma unroll
  for (int part = 0; part < TILE; ++part) {
    const int step = min(first_step + part * SIDE + j, steps - 1), t = step / batch, n = step % batch;
    w[part] = wei + (of * rows + min(first_row + part * SIDE + j, rows - 1)) * width;
    from[part] = x + (batch_first ? n * time + t : step) * width;
#pragma unroll
    for (int other = 0; other < TILE; ++other) sum[part][other] = 0;
  }
  for (int k = 0; k < width; k += SIDE) {
    const int at = k + i;
#pragma unroll
    for (int part = 0; part < TILE; ++part) {
      ws[part * SIDE + j][i] = at < width ? (ACC)LOAD_T(w[part], at) : (ACC)0;
      xs[part * SIDE + j][i] = at < width ? (ACC)LOAD_T(from[part], at) : (ACC)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int count = min(SIDE, width - k);
    for (int l = 0; l < count; ++l) {
#pragma unroll
      for (int a = 0; a < TILE; ++a)
#pragma unroll
        for (int b = 0; b < TILE; ++b) sum[a][b] += xs[a * SIDE + j][l] * ws[b * SIDE + i][l];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int a = 0; a < TILE; ++a) {
    const int step = first_step + a * SIDE + j;
#pragma unroll
    for (int b = 0; b < TILE; ++b) {
      const int row = first_row + b * SIDE + i;
      if (row < rows && step < steps)
        gates[(get_global_id(2) * steps + step) * rows + row] =
            sum[a][b] + (bias ? (ACC)LOAD_T(bias, of * 2 * rows + row) : (ACC)0);
    }
  }
}

#ifndef WIDE
#define WIDE 1
#endif
#if WIDE == 8
#define READ(p) (*(SPACE const float8*)(p))
#define SUM(a, b) (dot((a).lo, (b).lo) + dot((a).hi, (b).hi))
#define VECTOR float8
#elif WIDE == 4
#define READ(p) (*(SPACE const float4*)(p))
#define SUM(a, b) dot(a, b)
#define VECTOR float4
#else
#define READ(p) (*(p))
#define SUM(a, b) ((a) * (b))
#define VECTOR ACC
#define FLOATS(p) ((ACC)LOAD_R(p, 0))
#endif
#define AT_ONCE 4
#define SLOTS (GROUP / LANES)
// Sums of neighbouring lanes lie in different banks.
#define PITCH (SLOTS * AT_ONCE + 4)
// sums[row] = r[row] . vector for the rows from `first` to `end`; every item has to call it.
static void add_up(__global const R* r, SPACE const ACC* vector, SPACE ACC* sums, const int hidden, const int first,
    const int end, __local ACC* part) {
  const int item = get_local_id(0), lane = item % LANES, slot = item / LANES;
  for (int base = first; base < end; base += SLOTS * AT_ONCE) {
    ACC sum[AT_ONCE];
    __global const R* row[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      sum[i] = 0;
      row[i] = r + min(base + i * SLOTS + slot, end - 1) * hidden;
    }
#pragma unroll 2
    for (int k = lane * WIDE; k < hidden; k += LANES * WIDE) {
      const VECTOR x = READ(vector + k);
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) sum[i] += SUM(FLOATS(row[i] + k), x);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) part[lane * PITCH + i * SLOTS + slot] = sum[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < SLOTS * AT_ONCE && base + i < end; i += GROUP) {
      ACC whole = 0;
      for (int l = 0; l < LANES; ++l) whole += part[l * PITCH + i];
      sums[base + i] = whole;
    }
    SYNC
  }
}

#define FROM(row, vector) (sums[row] + BIAS(row))
#define ADD_UP(first, end, vector) add_up(r, vector, sums, hidden, first, end, part);
#endif

#ifdef IN_SEQUENCES
#include "recurrent_sequences.cl"
#else
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent(
    __global const ACC* restrict gates, __global const R* restrict rec, __global const T* bias, __global const T* peep,
    __global const int* lens, __global const T* h0, __global const T* c0, __global T* y, __global T* yh, __global T* yc,
    __global ACC* states, const int time, const int batch, const int width, const int hidden, const int direction,
    const int directions, const int batch_first, const int reverse EXCHANGE(const int)) {
#ifdef MEMBERS
  const int steps = *exchange == MEMBERS ? 0 : time;
#else
  const int steps = time;
#endif
  const int n = get_group_id(0), lane = get_local_id(0), rows = GATES * hidden, turn = get_group_id(1), of = direction + turn;
  const int state = (batch_first ? n * directions + of : of * batch + n) * hidden, backwards = reverse || of == 1;
#ifdef STATES
  __local ACC held[STATES] __attribute__((aligned(32)));
  __local ACC* h = held;
#else
  __global ACC* h = states + (turn * batch + n) * (4 * hidden + (GROUP > 1 ? rows : 0));
#endif
  SPACE ACC *next = h + hidden, *c = next + hidden, *reset = c + hidden;
#if GROUP > 1
  SPACE ACC* sums = reset + hidden;
  __local ACC part[LANES * PITCH];
#endif
  __global const R* r = rec + of * rows * hidden;
  __global const T* b = bias ? bias + (2 * of + 1) * rows : bias;
  __global const T* p = peep ? peep + of * 3 * hidden : peep;
#define BIAS(row) (b ? (ACC)LOAD_T(b, row) : (ACC)0)
#define PEEP(row) (p ? (ACC)LOAD_T(p, row) : (ACC)0)
#define FROM_H(row) FROM(row, h)
  for (int j = lane; j < hidden; j += GROUP) {
    h[j] = h0 ? (ACC)LOAD_T(h0, state + j) : (ACC)0;
    c[j] = c0 ? (ACC)LOAD_T(c0, state + j) : (ACC)0;
  }
  SYNC
  for (int step = 0; step < steps; ++step) {
    const int t = backwards ? time - 1 - step : step, alive = !lens || t < lens[n];
    __global const ACC* g = gates + ((turn * time + t) * batch + n) * rows;
    const int out = batch_first ? ((n * time + t) * directions + of) * hidden : ((t * directions + of) * batch + n) * hidden;
#if defined(GRU) && !defined(BEFORE_RESET)
    // One call of add_up: PoCL mixes up the values of work groups where it inlines a function with barriers twice.
    for (int phase = 0; phase < 2; ++phase) {
      ADD_UP(phase * 2 * hidden, phase ? rows : 2 * hidden, phase ? reset : h)
      for (int j = lane; j < hidden && !phase; j += GROUP) {
        const ACC a = g[hidden + j] + FROM_H(hidden + j);
        reset[j] = F(LIMITED(a)) * h[j];
      }
      SYNC
    }
#else
    ADD_UP(0, rows, h)
#endif
    for (int j = lane; j < hidden; j += GROUP) {
      ACC value = h[j];
      if (alive) {
        ACC given[GATES], sum[GATES], weights[GATES];
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) {
#ifdef INPUT_FORGET
          if (gate == 2) continue;
#endif
          const int row = gate * hidden + j;
          given[gate] = g[row];
#if defined(GRU) && !defined(BEFORE_RESET)
          // The reset gate has been used.
          sum[gate] = gate == 1 ? (ACC)0 : gate == 2 ? FROM(row, reset) : FROM_H(row);
#else
          sum[gate] = FROM_H(row);
#endif
          weights[gate] = gate < 3 ? PEEP(row) : (ACC)0;
        }
        ACC cell = c[j];
        value = new_state(given, sum, weights, value, &cell);
        c[j] = cell;
      }
      next[j] = value;
      if (y) STORE_T(y, out + j, alive ? value : (ACC)0);
    }
    SYNC
    SPACE ACC* swap = h;
    h = next;
    next = swap;
  }
  for (int j = lane; j < hidden && steps == time; j += GROUP) {
    if (yh) STORE_T(yh, state + j, h[j]);
    if (yc) STORE_T(yc, state + j, c[j]);
  }
}
#endif
