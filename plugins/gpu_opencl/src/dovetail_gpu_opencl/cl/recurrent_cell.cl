// The arithmetic of one hidden unit of an RNN, GRU or LSTM (the macro of that name), for recurrent.cl, recurrent_shared.cl and
// recurrent_sequences.cl.
//
// CELL is the type of the numbers, ACC or a vector of these for several units.
// F(x), G(x), H(x) are the activations, CLIP limits their inputs. BEFORE_RESET and INPUT_FORGET as in ONNX.
#ifndef GATES
#ifndef ACC
#define ACC float
#define LSTM
#define F(x) (1 / (1 + exp(-(x))))
#define G(x) tanh(x)
#define H(x) tanh(x)
#endif
#ifndef CELL
#define CELL ACC
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

// The next state of a unit. For each gate: x from the inputs, s from the states with the recurrent bias; the weights of
// peepholes, the state `h` before this step and the cell state, which only an LSTM has. s[2] of a GRU without BEFORE_RESET is of
// h * reset.
static CELL new_state(const CELL* x, const CELL* s, const CELL* peep, const CELL h, CELL* cell) {
#if defined(LSTM)
  const CELL c = *cell, a = x[0] + s[0] + peep[0] * c;
  const CELL in = F(LIMITED(a));
#ifdef INPUT_FORGET
  const CELL forget = 1 - in;
#else
  const CELL e = x[2] + s[2] + peep[2] * c;
  const CELL forget = F(LIMITED(e));
#endif
  const CELL d = x[3] + s[3];
  const CELL next = forget * c + in * (G(LIMITED(d)));
  const CELL q = x[1] + s[1] + peep[1] * next;
  *cell = next;
  return F(LIMITED(q)) * (H(next));
#elif defined(GRU)
  const CELL a = x[0] + s[0];
  const CELL z = F(LIMITED(a));
#ifdef BEFORE_RESET
  const CELL e = x[1] + s[1];
  const CELL d = x[2] + F(LIMITED(e)) * s[2];
#else
  const CELL d = x[2] + s[2];
#endif
  return (1 - z) * (G(LIMITED(d))) + z * h;
#else
  const CELL a = x[0] + s[0];
  return F(LIMITED(a));
#endif
}
#endif
