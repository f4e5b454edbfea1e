// The steps of an RNN, GRU or LSTM (the macro of that name) on CPUs, after `project` of recurrent.cl: a work item takes several
// sequences, which share what it reads of the recurrent weights, and computes UNITS hidden units at once.
//
// NDRange: (groups, directions), local size (1, 1). Group g takes the sequences g, g + groups, ..., at most SEQUENCES, so that
// long ones and short ones, which callers often sort, are mixed. Where fewer go on, the last one is computed again in place of
// the others: a program with a loop for each number takes PoCL three times as long to build.
//
// Layout and arguments are those of `recurrent` of recurrent.cl; all numbers are float. states is [directions][batch][3 * hidden
// + rows]: the states, the cell states, the states times the reset gate, and the products of the weights with one of these.
//
// Tunables: UNITS, 8, which divides `hidden`, or 1, as for activations that take no vectors; SEQUENCES, 1 or 4.
#ifndef UNITS
#define UNITS 1
#endif
#ifndef SEQUENCES
#define SEQUENCES 4
#endif
#include "recurrent_cell.cl"

#ifndef AT
// Not vload: some drivers leave it as a function call, which spills every register.
typedef struct __attribute__((packed)) {
  float8 v;
} PACKED_FLOAT;
#define AT(p, i) (((__global const PACKED_FLOAT*)((p) + (i)))->v)
#endif

static float added_up(const float8 sum) {
  const float4 half_sum = sum.lo + sum.hi;
  const float2 quarter = half_sum.lo + half_sum.hi;
  return quarter.x + quarter.y;
}

#if UNITS == 8
#define PART(p) AT(p, 0)
#define STORE_PART(p, value) (((__global PACKED_FLOAT*)(p))->v = (value))
#else
#define PART(p) (*(p))
#define STORE_PART(p, value) (*(p) = (value))
#endif

#define ROWS (SEQUENCES == 1 ? 4 : 2)
#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; ++i)
// sums[s][row] = r[row] . vectors[s] for the rows from `first` to `end`, ROWS at a time, because a sum has to wait for itself.
static void add_up(__global const float* r, __global float* const* vectors, __global float* const* sums, const int n,
                   const int first, const int end) {
  __global const float* v[SEQUENCES];
  EACH(s, SEQUENCES) v[s] = vectors[s];
  for (int row = first; row < end; row += ROWS) {
    __global const float* w[ROWS];
    float8 sum[ROWS][SEQUENCES];
    EACH(k, ROWS) w[k] = r + min(row + k, end - 1) * n;
    EACH(k, ROWS) EACH(s, SEQUENCES) sum[k][s] = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8) EACH(k, ROWS) EACH(s, SEQUENCES) sum[k][s] += AT(w[k], i) * AT(v[s], i);
    EACH(k, ROWS) EACH(s, SEQUENCES) {
      float whole = added_up(sum[k][s]);
      for (int j = i; j < n; ++j) whole += w[k][j] * v[s][j];
      sums[s][min(row + k, end - 1)] = whole;
    }
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void recurrent_sequences(
    __global const float* restrict gates, __global const float* restrict rec, __global const float* bias,
    __global const float* peep, __global const int* lens, __global const float* h0, __global const float* c0, __global float* y,
    __global float* yh, __global float* yc, __global float* states, const int time, const int batch, const int width,
    const int hidden, const int direction, const int directions, const int batch_first, const int reverse) {
  const int group = get_group_id(0), groups = get_num_groups(0), turn = get_group_id(1), of = direction + turn;
  const int rows = GATES * hidden, backwards = reverse || of == 1;
  __global const float* r = rec + of * rows * hidden;
  __global const float* b = bias ? bias + (2 * of + 1) * rows : bias;
  __global const float* p = peep ? peep + of * 3 * hidden : peep;
  for (int n = group; n < batch; n += groups) {
    const int state = (batch_first ? n * directions + of : of * batch + n) * hidden;
    __global float *h = states + (turn * batch + n) * (3 * hidden + rows), *c = h + hidden;
    for (int j = 0; j < hidden; ++j) {
      h[j] = h0 ? h0[state + j] : 0.0f;
      c[j] = c0 ? c0[state + j] : 0.0f;
    }
  }
  for (int step = 0; step < time; ++step) {
    const int t = backwards ? time - 1 - step : step;
    __global float *h[SEQUENCES], *resets[SEQUENCES], *sums[SEQUENCES], *out[SEQUENCES];
    __global const float* given[SEQUENCES];
    int count = 0;
    for (int n = group; n < batch; n += groups) {
      const int at = (batch_first ? (n * time + t) * directions + of : (t * directions + of) * batch + n) * hidden;
      if (!lens || t < lens[n]) {
        h[count] = states + (turn * batch + n) * (3 * hidden + rows);
        resets[count] = h[count] + 2 * hidden;
        sums[count] = h[count] + 3 * hidden;
        out[count] = y ? y + at : y;
        given[count++] = gates + ((turn * time + t) * batch + n) * rows;
      } else if (y) {
        for (int j = 0; j < hidden; ++j) y[at + j] = 0;
      }
    }
    if (!count) continue;
    for (int s = count; s < SEQUENCES; ++s) {
      h[s] = h[count - 1];
      resets[s] = resets[count - 1];
      sums[s] = sums[count - 1];
    }
#if defined(GRU) && !defined(BEFORE_RESET)
    for (int phase = 0; phase < 2; ++phase) {  // one call of add_up, because all are written out
      add_up(r, phase ? resets : h, sums, hidden, phase * 2 * hidden, phase ? rows : 2 * hidden);
      for (int s = 0; s < count && !phase; ++s)
        for (int j = 0; j < hidden; j += UNITS) {
          CELL a = PART(given[s] + hidden + j) + PART(sums[s] + hidden + j);
          if (b) a += PART(b + hidden + j);
          STORE_PART(resets[s] + j, F(LIMITED(a)) * PART(h[s] + j));
        }
    }
#else
    add_up(r, h, sums, hidden, 0, rows);
#endif
    for (int s = 0; s < count; ++s)
      for (int j = 0; j < hidden; j += UNITS) {
        CELL from_x[GATES], from_h[GATES], weights[GATES], cell = PART(h[s] + hidden + j);
        for (int gate = 0; gate < GATES; ++gate) {
          const int row = gate * hidden + j;
          from_x[gate] = PART(given[s] + row);
          from_h[gate] = PART(sums[s] + row);
          if (b) from_h[gate] += PART(b + row);
          weights[gate] = 0;
          if (p && gate < 3) weights[gate] = PART(p + row);
        }
        const CELL value = new_state(from_x, from_h, weights, PART(h[s] + j), &cell);
        STORE_PART(h[s] + j, value);
        STORE_PART(h[s] + hidden + j, cell);
        if (y) STORE_PART(out[s] + j, value);
      }
  }
  for (int n = group; n < batch; n += groups) {
    const int state = (batch_first ? n * directions + of : of * batch + n) * hidden;
    __global const float *h = states + (turn * batch + n) * (3 * hidden + rows), *c = h + hidden;
    for (int j = 0; j < hidden; ++j) {
      if (yh) yh[state + j] = h[j];
      if (yc) yc[state + j] = c[j];
    }
  }
}
