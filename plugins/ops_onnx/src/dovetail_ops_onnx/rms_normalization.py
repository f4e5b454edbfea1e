"""RMSNormalization. https://onnx.ai/onnx/operators/onnx__RMSNormalization.html (Zhang and Sennrich, 2019)"""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, OperatorError, TensorType
from dovetail_ops_onnx._axes import require_broadcast
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.reciprocal import Reciprocal
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.sqrt import Sqrt


class RMSNormalization(Operator):
    """Y = X / sqrt(mean(X^2) + epsilon) * scale, with the mean over all axes from `axis` on; Y has the type of scale.

    Computed in float32, in float64 for float64 inputs, whatever the narrower `stash_type`; the result is rounded once.
    """

    since = 23
    inputs = ("X: T", "scale: V")
    outputs = ("Y: V",)
    types = {"T": FLOATS, "V": FLOATS}
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: DType = DType.FLOAT32

    def __post_init__(self) -> None:
        if self.stash_type not in FLOATS:
            raise OperatorError(f"attribute 'stash_type' is {self.stash_type}; accepted: a floating-point type")

    def infer(self, X: TensorType, scale: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        require_broadcast("scale", scale.dims, X.dims)
        return TensorType(scale.dtype, X.dims)

    def reference(self, X: Array, scale: Array) -> Array:
        x = wide(X)
        axis = check_axis(self.axis, X.ndim)
        with np.errstate(all="ignore"):
            count = np.asarray(math.prod(X.shape[axis:]), x.dtype)
            mean = np.sum(x * x, axis=tuple(range(axis, X.ndim)), keepdims=True) / count
            return rounded(x / np.sqrt(mean + self.epsilon) * wide(scale), scale.dtype)

    def compose(self, g: GraphBuilder, X: str, scale: str) -> str:
        """Square, mean, inverse root and two products: devices that have no kernel of their own fuse these to three nodes."""
        given, factor = g.given(X), g.given(scale)
        inner = DType.FLOAT64 if given.dtype is DType.FLOAT64 else DType.FLOAT32
        x, row = (name if t.dtype is inner else g.node(Cast(to=inner), name) for name, t in ((X, given), (scale, factor)))
        axes = g.constant(list(range(check_axis(self.axis, given.rank), given.rank)), DType.INT64)
        mean = g.node(ReduceMean(), g.node(Pow(), x, g.constant(2, inner)), axes)
        inverse = g.node(Reciprocal(), g.node(Sqrt(), g.node(Add(), mean, g.constant(self.epsilon, inner))))
        y: str = g.node(Mul(), g.node(Mul(), x, inverse), row)
        return y if factor.dtype is inner else str(g.node(Cast(to=factor.dtype), y))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 5 * outputs[0].size
