"""Neg: https://onnx.ai/onnx/operators/onnx__Neg.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import SIGNED, Array, Chain, Types


class Neg(Operator):
    """-x; the lowest integer stays as it is (it wraps)."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": SIGNED}
    in_place = True

    def reference(self, x: Array) -> Array:
        """-x."""
        return computed(np.negative, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise linear with factor -1."""
        return eltwise(types, "linear", -1.0, 0.0)
