"""Ceil: https://onnx.ai/onnx/operators/onnx__Ceil.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Ceil(Operator):
    """The smallest integer not below each element."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """ceil(x)."""
        return computed(np.ceil, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise ceil."""
        return eltwise(types, "ceil")
