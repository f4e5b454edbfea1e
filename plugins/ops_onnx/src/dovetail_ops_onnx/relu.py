"""Relu: https://onnx.ai/onnx/operators/onnx__Relu.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import SIGNED, Array, Chain, Types


class Relu(Operator):
    """The larger of each element and 0."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum"
    types = {"T": SIGNED}
    in_place = True

    def reference(self, x: Array) -> Array:
        """max(x, 0); NaN stays NaN."""
        return computed(lambda v: np.maximum(v, v.dtype.type(0)), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise relu without slope."""
        return eltwise(types, "relu")
