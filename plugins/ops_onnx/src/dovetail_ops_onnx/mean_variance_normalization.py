"""MeanVarianceNormalization: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html."""

import numpy as np

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axes
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx.sub import Sub

_EPSILON = 1e-9
"""The standard's, added to the standard deviation."""


class MeanVarianceNormalization(Operator):
    """(X - mean) / (standard deviation + 1e-9) over `axes`."""

    since = 9
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    axes: tuple[int, ...] = (0, 2, 3)

    def infer(self, x: TensorType) -> TensorType:
        """The input's type."""
        check_axes(self.axes, x.rank)
        return x.with_shape(x.dims)

    def reference(self, X: Array) -> Array:
        """In two passes."""
        x, axes = wide(X), check_axes(self.axes, X.ndim)
        with np.errstate(all="ignore"):
            count = x.dtype.type(np.prod([x.shape[axis] for axis in axes]))  # np.mean warns of 0 elements
            centred = x - x.sum(axes, keepdims=True) / count
            deviation = np.sqrt(np.square(centred).sum(axes, keepdims=True) / count)
            return rounded(centred / (deviation + x.dtype.type(_EPSILON)), X.dtype)

    def compose(self, g: GraphBuilder, x: str) -> str:
        """Means, a root and a quotient. Types of 16 bits are computed in float32, where squares do not overflow."""
        given = g.given(x)
        inner = DType.FLOAT64 if given.dtype is DType.FLOAT64 else DType.FLOAT32
        x = x if given.dtype is inner else g.node(Cast(to=inner), x)
        axes = g.constant(np.array(check_axes(self.axes, given.rank), np.int64))
        centred = g.node(Sub(), x, g.node(ReduceMean(), x, axes))
        deviation = g.node(Sqrt(), g.node(ReduceMean(), g.node(Mul(), centred, centred), axes))
        name: str = g.node(Div(), centred, g.node(Add(), deviation, g.constant(_EPSILON, inner)))
        return name if given.dtype is inner else str(g.node(Cast(to=given.dtype), name))
