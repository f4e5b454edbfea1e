"""Swish: https://onnx.ai/onnx/operators/onnx__Swish.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Swish(Operator):
    """x / (1 + exp(-alpha * x))."""

    since = 24
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    alpha: float = 1.0

    def reference(self, x: Array) -> Array:
        """x / (1 + exp(-alpha * x))."""
        return computed(lambda v: v / (1 + np.exp(-self.alpha * v)), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise swish."""
        return eltwise(types, "swish", self.alpha)
