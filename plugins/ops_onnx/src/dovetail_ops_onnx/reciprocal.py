"""Reciprocal: https://onnx.ai/onnx/operators/onnx__Reciprocal.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Reciprocal(Operator):
    """1 / x."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """1 / x; a zero gives an infinity of its sign."""
        return computed(np.reciprocal, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise pow with exponent -1."""
        return eltwise(types, "pow", 1.0, -1.0)
