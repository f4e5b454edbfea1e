"""GRU: the gated recurrent unit. https://onnx.ai/onnx/operators/onnx__GRU.html (Cho et al., 2014)"""

import numpy as np

from dovetail_ops_onnx._recurrent import Cell, Recurrent
from dovetail_ops_onnx._types import Array


class GRU(Recurrent):
    """H = (1 - z) n + z h with gates z (update), r (reset) and n (hidden, "h" in the standard); see `Recurrent`.

    `linear_before_reset`: the reset gate multiplies h R^T + Rb, not h.
    """

    gates = 3
    defaults = ("Sigmoid", "Tanh")
    linear_before_reset: bool = False

    def step(self, x: Array, states: tuple[Array, ...], cell: Cell) -> tuple[Array, ...]:
        (h,) = states
        f, g = cell.functions
        from_x = np.split(x @ cell.W.T + cell.Wb, 3, axis=1)
        Rz, Rr, Rn = np.split(cell.R, 3)
        bz, br, bn = np.split(cell.Rb, 3)
        z = f(self.clipped(from_x[0] + h @ Rz.T + bz))
        r = f(self.clipped(from_x[1] + h @ Rr.T + br))
        from_h = r * (h @ Rn.T + bn) if self.linear_before_reset else (r * h) @ Rn.T + bn
        n = g(self.clipped(from_x[2] + from_h))
        return ((1 - z) * n + z * h,)
