"""RNN: the simple recurrent network. https://onnx.ai/onnx/operators/onnx__RNN.html"""

from dovetail_ops_onnx._recurrent import Cell, Recurrent
from dovetail_ops_onnx._types import Array


class RNN(Recurrent):
    """H = f(x W^T + h R^T + Wb + Rb); see `Recurrent`."""

    gates = 1
    defaults = ("Tanh",)
    activations: tuple[str, ...] | None = ("Tanh", "Tanh")

    def step(self, x: Array, states: tuple[Array, ...], cell: Cell) -> tuple[Array, ...]:
        return (cell.functions[0](self.clipped(x @ cell.W.T + states[0] @ cell.R.T + cell.Wb + cell.Rb)),)
