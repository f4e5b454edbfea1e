// RNN, GRU or LSTM (the macro of that name) in one direction.
//
// project: gates[t][n][row] = x[t][n] . wei[row] + bias[row], for all rows of all gates.
// recurrent: the states through time; y is 0 and the states stay as they are past the end of a sequence.
//
// NDRange: project (time * batch * rows, rounded up to the local size), a work item a row; recurrent (batch * GROUP), local size
// GROUP, a work group a sequence, whose items take the hidden units in turn.
//
// Layout: x [time][batch][width], wei [directions][rows][width], rec [directions][rows][hidden], bias [directions][2][rows], rows in
// the order of ONNX's gates; h0, c0, yh, yc [directions][batch][hidden]; y [time][directions][batch][hidden]; with batch_first
// the batch comes before all else in x, y and the states. bias, peep, lens, h0, c0, y, yh, yc may be NULL.
// states [batch][4][hidden] is work space.
//
// F(x), G(x), H(x) are the activations, CLIP limits their inputs. BEFORE_RESET and INPUT_FORGET as in ONNX.
//
// Tunables: GROUP.
#ifndef T
#define T float
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define ACC float
#define LSTM
#define F(x) (1 / (1 + exp(-(x))))
#define G(x) tanh(x)
#define H(x) tanh(x)
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifdef LSTM
#define GATES 4
#elif defined(GRU)
#define GATES 3
#else
#define GATES 1
#endif
#ifdef CLIP
#define LIMITED(x) ((x) < -CLIP ? -CLIP : ((x) > CLIP ? CLIP : (x)))
#else
#define LIMITED(x) (x)
#endif
#if GROUP > 1
#define SYNC barrier(CLK_GLOBAL_MEM_FENCE);
#else
#define SYNC
#endif
#define LANES 8

// Several sums side by side, so that a compiler may use vectors.
#define DOT(name, space, type, load)                                                                 \
  static ACC name(__global const T* a, space const type* b, int n) {                                 \
    ACC part[LANES], sum = 0;                                                                        \
    for (int k = 0; k < LANES; ++k) part[k] = 0;                                                     \
    int i = 0;                                                                                       \
    for (; i + LANES <= n; i += LANES)                                                               \
      for (int k = 0; k < LANES; ++k) part[k] += (ACC)LOAD_T(a, i + k) * (ACC)load(b, i + k);        \
    for (; i < n; ++i) sum += (ACC)LOAD_T(a, i) * (ACC)load(b, i);                                   \
    for (int k = 0; k < LANES; ++k) sum += part[k];                                                  \
    return sum;                                                                                      \
  }
#define PLAIN(p, i) ((p)[i])
DOT(dot_of_x, __global, T, LOAD_T)
DOT(dot_of_h, __global, ACC, PLAIN)

__kernel void project(__global const T* restrict x, __global const T* restrict wei, __global const T* bias,
                      __global ACC* restrict gates, const int time, const int batch, const int width, const int hidden,
                      const int direction, const int directions, const int batch_first) {
  const int o = get_global_id(0), rows = GATES * hidden;
  if (o >= time * batch * rows) return;
  const int row = o % rows, n = o / rows % batch, t = o / (rows * batch);
  const ACC sum = dot_of_x(wei + (direction * rows + row) * width, x + (batch_first ? n * time + t : t * batch + n) * width, width);
  gates[o] = sum + (bias ? (ACC)LOAD_T(bias, direction * 2 * rows + row) : (ACC)0);
}

__kernel void recurrent(__global const ACC* restrict gates, __global const T* restrict rec, __global const T* bias,
                        __global const T* peep, __global const int* lens, __global const T* h0, __global const T* c0,
                        __global T* y, __global T* yh, __global T* yc, __global ACC* states, const int time, const int batch,
                        const int width, const int hidden, const int direction, const int directions, const int batch_first,
                        const int backwards) {
  const int n = get_group_id(0), lane = get_local_id(0), rows = GATES * hidden;
  const int state = (batch_first ? n * directions + direction : direction * batch + n) * hidden;
  __global ACC *h = states + n * 4 * hidden, *next = h + hidden, *c = next + hidden, *reset = c + hidden;
  __global const T* r = rec + direction * rows * hidden;
  __global const T* b = bias ? bias + (2 * direction + 1) * rows : bias;
  __global const T* p = peep ? peep + direction * 3 * hidden : peep;
#define BIAS(row) (b ? (ACC)LOAD_T(b, row) : (ACC)0)
#define PEEP(row) (p ? (ACC)LOAD_T(p, row) : (ACC)0)
#define FROM_H(row) (dot_of_h(r + (row)*hidden, h, hidden) + BIAS(row))
  for (int j = lane; j < hidden; j += GROUP) {
    h[j] = h0 ? (ACC)LOAD_T(h0, state + j) : (ACC)0;
    c[j] = c0 ? (ACC)LOAD_T(c0, state + j) : (ACC)0;
  }
  SYNC
  for (int step = 0; step < time; ++step) {
    const int t = backwards ? time - 1 - step : step, alive = !lens || t < lens[n];
    __global const ACC* g = gates + (t * batch + n) * rows;
    const int out = batch_first ? ((n * time + t) * directions + direction) * hidden : ((t * directions + direction) * batch + n) * hidden;
#if defined(GRU) && !defined(BEFORE_RESET)
    if (alive)
      for (int j = lane; j < hidden; j += GROUP) {
        const ACC a = g[hidden + j] + FROM_H(hidden + j);
        reset[j] = F(LIMITED(a)) * h[j];
      }
    SYNC
#endif
    for (int j = lane; j < hidden; j += GROUP) {
      ACC value = h[j];
      if (alive) {
#if defined(LSTM)
        const ACC a = g[j] + FROM_H(j) + PEEP(j) * c[j];
        const ACC in = F(LIMITED(a));
#ifdef INPUT_FORGET
        const ACC forget = 1 - in;
#else
        const ACC e = g[2 * hidden + j] + FROM_H(2 * hidden + j) + PEEP(2 * hidden + j) * c[j];
        const ACC forget = F(LIMITED(e));
#endif
        const ACC d = g[3 * hidden + j] + FROM_H(3 * hidden + j);
        c[j] = forget * c[j] + in * (G(LIMITED(d)));
        const ACC q = g[hidden + j] + FROM_H(hidden + j) + PEEP(hidden + j) * c[j];
        value = F(LIMITED(q)) * (H(c[j]));
#elif defined(GRU)
        const ACC a = g[j] + FROM_H(j);
        const ACC z = F(LIMITED(a));
#ifdef BEFORE_RESET
        const ACC e = g[hidden + j] + FROM_H(hidden + j);
        const ACC d = g[2 * hidden + j] + F(LIMITED(e)) * FROM_H(2 * hidden + j);
#else
        const ACC d = g[2 * hidden + j] + dot_of_h(r + (2 * hidden + j) * hidden, reset, hidden) + BIAS(2 * hidden + j);
#endif
        value = (1 - z) * (G(LIMITED(d))) + z * h[j];
#else
        const ACC a = g[j] + FROM_H(j);
        value = F(LIMITED(a));
#endif
      }
      next[j] = value;
      if (y) STORE_T(y, out + j, alive ? value : (ACC)0);
    }
    SYNC
    __global ACC* swap = h;
    h = next;
    next = swap;
  }
  for (int j = lane; j < hidden; j += GROUP) {
    if (yh) STORE_T(yh, state + j, h[j]);
    if (yc) STORE_T(yc, state + j, c[j]);
  }
}
