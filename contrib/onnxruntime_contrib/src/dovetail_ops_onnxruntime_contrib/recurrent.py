"""Recurrent operators with quantized weights."""

from typing import Any

from dovetail.op import DType, GraphBuilder, ShapeError, TensorType
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node, reshape, transpose

__all__ = ["DynamicQuantizeLSTM"]


class DynamicQuantizeLSTM(MicrosoftOperator):
    """LSTM with weights of 8 bits: W [dirs, input, 4 hidden] and R [dirs, hidden, 4 hidden], scales and zero points [dirs] or
    [dirs, 4 hidden].

    The weights become floats while planning. ONNX Runtime also quantizes X, and the hidden state of every step, before it
    multiplies; here they stay floats, so that results are closer to the network that was quantized.
    """

    inputs = (
        "X: T", "W: T2", "R: T2", "B?: T", "sequence_lens?: T1", "initial_h?: T", "initial_c?: T", "P?: T",
        "W_scale: T", "W_zero_point: T2", "R_scale: T", "R_zero_point: T2",
    )  # fmt: skip
    outputs = ("Y?: T", "Y_h?: T", "Y_c?: T")
    types = {
        "T": frozenset({DType.FLOAT32}),
        "T1": frozenset({DType.INT32}),
        "T2": frozenset({DType.UINT8, DType.INT8}),
    }
    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: bool = False

    def infer(self, X: TensorType, W: TensorType, R: TensorType, *rest: TensorType | None) -> tuple[TensorType, ...]:
        """Types of Y, Y_h and Y_c: as LSTM's."""
        for name, weights, scale, zero in (("W", W, rest[5], rest[6]), ("R", R, rest[7], rest[8])):
            assert scale is not None
            assert zero is not None
            if weights.rank != 3 or scale.dims not in (weights.dims[:1], (weights.dims[0], weights.dims[2])):
                accepted = "[dirs, size, 4 hidden], and [dirs] or [dirs, 4 hidden]"
                raise ShapeError(f"input '{name}' is {weights}, its scale {scale}; accepted: {accepted}")
            if zero.dims != scale.dims:
                raise ShapeError(f"the zero point of '{name}' is {zero}; accepted: the shape of its scale, {list(scale.dims)}")
        plain = [t.with_dtype(X.dtype).with_shape((t.dims[0], t.dims[2], t.dims[1])) for t in (W, R)]
        return LSTM.like(self).infer(X, *plain, *rest[:5])

    def compose(self, g: GraphBuilder, x: str, w: str, r: str, *rest: str) -> Any:
        """Floats of the weights, then LSTM."""
        weights = [_floats(g, w, *rest[5:7]), _floats(g, r, *rest[7:9])]
        return g.node(LSTM.like(self), x, *weights, *rest[:5], outputs=3)


def _floats(g: GraphBuilder, weights: str, scale: str, zero: str) -> str:
    """(W - zero) * scale with its last two axes swapped, as LSTM has them."""
    scales = g.given(scale)
    shape = (scales.dims[0], 1, scales.dims[1] if scales.rank == 2 else 1)

    def wide(name: str) -> str:
        return node(g, Cast(to=DType.FLOAT32), name)

    centred = node(g, Sub(), wide(weights), reshape(g, wide(zero), shape))
    return transpose(g, node(g, Mul(), centred, reshape(g, scale, shape)), (0, 2, 1))
