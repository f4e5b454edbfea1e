"""Abs: https://onnx.ai/onnx/operators/onnx__Abs.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import NUMERIC, Array, Chain, Types


class Abs(Operator):
    """Absolute value; the lowest signed integer stays as it is (it wraps)."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": NUMERIC}
    in_place = True

    def reference(self, x: Array) -> Array:
        """|x|."""
        return computed(np.abs, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise abs."""
        return eltwise(types, "abs")
