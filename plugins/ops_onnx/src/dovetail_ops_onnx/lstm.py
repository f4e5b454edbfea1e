"""LSTM: long short-term memory. https://onnx.ai/onnx/operators/onnx__LSTM.html (Hochreiter and Schmidhuber, 1997)"""

import numpy as np

from dovetail_ops_onnx._recurrent import Cell, Recurrent
from dovetail_ops_onnx._types import Array


class LSTM(Recurrent):
    """C = f C + i c, H = o h(C), with the gates i, o, f and the cell input c in that order; see `Recurrent`.

    P are the peephole weights of i, o and f. `input_forget`: f = 1 - i.
    """

    inputs = ("X: T", "W: T", "R: T", "B?: T", "sequence_lens?: T1", "initial_h?: T", "initial_c?: T", "P?: T")
    outputs = ("Y?: T", "Y_h?: T", "Y_c?: T")
    gates = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")
    input_forget: bool = False

    def reference(
        self,
        X: Array,
        W: Array,
        R: Array,
        B: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        P: Array | None = None,
    ) -> tuple[Array, ...]:
        return self.run(X, W, R, B, sequence_lens, (initial_h, initial_c), P)

    def step(self, x: Array, states: tuple[Array, ...], cell: Cell) -> tuple[Array, ...]:
        h, c = states
        f, g, last = cell.functions
        in_i, in_o, in_f, in_c = np.split(x @ cell.W.T + h @ cell.R.T + cell.Wb + cell.Rb, 4, axis=1)
        peep_i, peep_o, peep_f = np.split(np.zeros(3 * h.shape[1], h.dtype) if cell.P is None else cell.P, 3)
        i = f(self.clipped(in_i + peep_i * c))
        forget = 1 - i if self.input_forget else f(self.clipped(in_f + peep_f * c))
        new_c = forget * c + i * g(self.clipped(in_c))
        o = f(self.clipped(in_o + peep_o * new_c))
        return o * last(new_c), new_c
