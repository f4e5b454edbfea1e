"""Sqrt: https://onnx.ai/onnx/operators/onnx__Sqrt.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Sqrt(Operator):
    """Square root; NaN below 0."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """sqrt(x)."""
        return computed(np.sqrt, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise sqrt."""
        return eltwise(types, "sqrt")
