"""PRelu: https://onnx.ai/onnx/operators/onnx__PRelu.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.graph import Prelu
from dovetail.op import DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import broadcast, computed, operand
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class PRelu(Operator):
    """X where X is not negative, else slope * X; the slope broadcasts to X."""

    since = 7
    inputs = ("X: T", "slope: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}}
    in_place = True

    def infer(self, x: TensorType, slope: TensorType) -> TensorType:
        """The type of X."""
        if broadcast(x, slope) != x.dims:
            raise ShapeError(f"input 'slope' is {slope}; accepted: a shape that broadcasts to {list(x.dims)}")
        return x.with_shape(x.shape)

    def reference(self, x: Array, slope: Array) -> Array:
        """x where x >= 0, else slope * x."""
        return computed(lambda v, s: np.where(v >= 0, v, s * v), x, slope)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Prelu, when X is chained."""
        return (Prelu(names[1]),) if chained == 0 and operand(types, names, 0) else None
