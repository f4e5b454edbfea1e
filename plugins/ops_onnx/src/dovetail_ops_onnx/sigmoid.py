"""Sigmoid: https://onnx.ai/onnx/operators/onnx__Sigmoid.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Sigmoid(Operator):
    """The logistic function 1 / (1 + exp(-x))."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    propagates_nan = True
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """1 / (1 + exp(-x)); an overflow of exp gives 0, as it should."""
        return computed(lambda v: 1 / (1 + np.exp(-v)), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise logistic."""
        return eltwise(types, "logistic")
