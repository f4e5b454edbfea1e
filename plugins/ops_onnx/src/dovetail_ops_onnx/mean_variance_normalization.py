"""MeanVarianceNormalization: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html."""

import numpy as np

from dovetail.op import FLOATS, GraphBuilder, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axes
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.add import Add
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
            centred = x - x.mean(axes, keepdims=True)
            deviation = np.sqrt(np.mean(np.square(centred), axes, keepdims=True))
            return rounded(centred / (deviation + x.dtype.type(_EPSILON)), X.dtype)

    def compose(self, g: GraphBuilder, x: str) -> str:
        """Means, a root and a quotient."""
        given = g.type_of(x)
        assert given is not None
        axes = g.constant(np.array(check_axes(self.axes, given.rank), np.int64))
        centred = g.node(Sub(), x, g.node(ReduceMean(), x, axes))
        deviation = g.node(Sqrt(), g.node(ReduceMean(), g.node(Mul(), centred, centred), axes))
        name: str = g.node(Div(), centred, g.node(Add(), deviation, g.constant(_EPSILON, given.dtype)))
        return name
