// The steps of an RNN, GRU with BEFORE_RESET or LSTM on several work groups, each of which keeps the weights of a few hidden
// units in registers and sends their states to the others through global memory. Arguments and layout are those of recurrent.cl,
// which does the work afterwards where not all groups ran at once.
//
// NDRange (groups * GROUP, directions), local size (GROUP, 1). SLOTS * LANES items have a unit: LANES items add up a row for a
// gate.
//
// No group waits for one that may not have started: each counts itself in the first element of `exchange` and waits until all
// have, but not for long. Who waited too long closes the count, after which all groups leave, and those that start later, too
// (Sorensen et al., Portable Inter-workgroup Barrier Synchronisation for GPUs, 2016). Groups that are all running make progress.
//
// exchange: the count in one element, then [2][directions][batch][HIDDEN] pairs of a state's bits (low) and the number of the
// step that it is for (high), written and read at once by 64 bits, so that no fence is needed. A state of step s + 2 replaces
// that of step s, which every group has read before it sent states for step s + 1. `project` has written zeros: no step reads for
// 0.
//
// PTX promises what this needs from sm_70 on: volatile accesses of 64 bits are not torn and reach memory that all groups see,
// and all items of a work group make progress.
//
// Tunables: GROUP, a multiple of SLOTS * LANES; PATIENCE, reads of the count before it is closed.
#include "halves.cl"
#ifndef T
#define T float
#define R float
#define LOAD_R(p, i) ((p)[i])
#define LOAD_T(p, i) ((p)[i])
#define STORE_T(p, i, v) ((p)[i] = (v))
#define HIDDEN 32
#define BATCH 1
#define GROUP 256
#define PATIENCE 1000
#endif
#include "recurrent_cell.cl"
#define LANES 8
#define SLOTS (GATES > 1 ? 4 : 1)
#define UNITS (GROUP / (LANES * SLOTS))
// A row is read as VECTORS vectors by each lane.
#define VECTORS ((HIDDEN + 4 * LANES - 1) / (4 * LANES))
#define PADDED (VECTORS * 4 * LANES)
// Sums of neighbouring units lie in different banks.
#define PITCH (LANES * SLOTS + 4)
#define STATES (BATCH * HIDDEN)
#define CLOSED 0x40000000

// Whether all `members` groups are running. One item of a group calls it.
static int joined(volatile __global int* count, const int members) {
  for (int seen = *count;;) {
    if (seen & CLOSED) return 0;
    const int was = atomic_cmpxchg(count, seen, seen + 1);
    if (was == seen) break;
    seen = was;
  }
  for (int tries = 0;; ++tries) {
    const int seen = *count;
    if (seen & CLOSED) return 0;
    if (seen == members) return 1;
    if (tries >= PATIENCE) atomic_cmpxchg(count, seen, seen | CLOSED);
  }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_shared(
    __global const ACC* restrict gates, __global const R* restrict rec, __global const T* bias, __global const T* peep,
    __global const int* lens, __global const T* h0, __global const T* c0, __global T* y, __global T* yh, __global T* yc,
    __global ulong* exchange, const int time, const int batch, const int width, const int hidden, const int direction,
    const int directions, const int batch_first, const int reverse) {
  __local int running;
  __local ACC h[BATCH][PADDED] __attribute__((aligned(16)));
  __local ACC part[BATCH][UNITS * PITCH] __attribute__((aligned(16)));
  const int item = get_local_id(0), lane = item % LANES, slot = item / LANES % SLOTS, turn = get_group_id(1),
      of = direction + turn;
  const int rows = GATES * HIDDEN, first = get_group_id(0) * UNITS, unit = first + item / (LANES * SLOTS);
  const int backwards = reverse || of == 1;
  if (item == 0) running = joined((volatile __global int*)exchange, get_num_groups(0) * get_num_groups(1));
  barrier(CLK_LOCAL_MEM_FENCE);
  // No return before barriers: PoCL crashes.
  const int steps = running ? time : 0;

  // The weights of this item: of a row, every LANES-th vector.
  float4 kept[VECTORS];
  __global const R* row = rec + (of * rows + slot * HIDDEN + unit) * HIDDEN;
  const int used = unit < HIDDEN && slot < GATES;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int k = (v * LANES + lane) * 4;
    kept[v].x = used && k < HIDDEN ? LOAD_R(row, k) : 0;
    kept[v].y = used && k + 1 < HIDDEN ? LOAD_R(row, k + 1) : 0;
    kept[v].z = used && k + 2 < HIDDEN ? LOAD_R(row, k + 2) : 0;
    kept[v].w = used && k + 3 < HIDDEN ? LOAD_R(row, k + 3) : 0;
  }

  // The first items finish one unit of one sequence each.
  const int n = item / UNITS, local_unit = item % UNITS, j = first + local_unit, finishes = item < BATCH * UNITS && j < HIDDEN;
  const int state = (batch_first ? n * directions + of : of * batch + n) * HIDDEN + j;
  const int length = finishes && lens ? lens[n] : time;
  ACC own = 0, cell = 0, recurrent_bias[GATES], weights[GATES];
  for (int gate = 0; gate < GATES; ++gate) recurrent_bias[gate] = weights[gate] = 0;
  if (finishes) {
    own = h0 ? (ACC)LOAD_T(h0, state) : (ACC)0;
    cell = c0 ? (ACC)LOAD_T(c0, state) : (ACC)0;
    for (int gate = 0; gate < GATES; ++gate) {
      if (bias) recurrent_bias[gate] = LOAD_T(bias, (2 * of + 1) * rows + gate * HIDDEN + j);
      if (peep && gate < 3) weights[gate] = LOAD_T(peep, (of * 3 + gate) * HIDDEN + j);
    }
  }
  for (int i = item; i < BATCH * PADDED; i += GROUP) {
    const int b = i / PADDED, k = i % PADDED, at = (batch_first ? b * directions + of : of * batch + b) * HIDDEN + k;
    h[b][k] = h0 && k < HIDDEN ? (ACC)LOAD_T(h0, at) : (ACC)0;
  }

  volatile __global ulong* sent = exchange + 1;
  for (int step = 0; step < steps; ++step) {
    const int t = backwards ? time - 1 - step : step;
    ACC x[GATES];
    if (finishes) {
#pragma unroll
      for (int gate = 0; gate < GATES; ++gate) x[gate] = gates[((turn * time + t) * BATCH + n) * rows + gate * HIDDEN + j];
    }
    if (step > 0) {
      volatile __global ulong* from = sent + ((step & 1) * get_num_groups(1) + turn) * STATES;
      for (int i = item; i < STATES; i += GROUP) {
        ulong found;
        do found = from[i];
        while ((int)(found >> 32) != step);
        h[i / HIDDEN][i % HIDDEN] = as_float((uint)found);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 2
    for (int b = 0; b < BATCH; ++b) {
      float4 sum = 0;
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) sum += kept[v] * *(__local const float4*)&h[b][(v * LANES + lane) * 4];
      part[b][item / (LANES * SLOTS) * PITCH + item % (LANES * SLOTS)] = (sum.x + sum.y) + (sum.z + sum.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (finishes) {
      ACC s[GATES];
#pragma unroll
      for (int gate = 0; gate < GATES; ++gate) {
        __local const float4* lanes = (__local const float4*)&part[n][local_unit * PITCH + gate * LANES];
        const float4 both = lanes[0] + lanes[1];
        s[gate] = (both.x + both.y) + (both.z + both.w) + recurrent_bias[gate];
      }
      const int alive = t < length;
      if (alive) own = new_state(x, s, weights, own, &cell);
      if (step + 1 < time)
        sent[(((step + 1) & 1) * get_num_groups(1) + turn) * STATES + n * HIDDEN + j] = (ulong)(step + 1) << 32 | as_uint(own);
      const int out = batch_first ? ((n * time + t) * directions + of) * HIDDEN : ((t * directions + of) * BATCH + n) * HIDDEN;
      if (y) STORE_T(y, out + j, alive ? own : (ACC)0);
    }
  }
  if (finishes && running) {
    if (yh) STORE_T(yh, state, own);
    if (yc) STORE_T(yc, state, cell);
  }
}
