"""Tanh: https://onnx.ai/onnx/operators/onnx__Tanh.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Tanh(Operator):
    """Hyperbolic tangent."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    propagates_nan = True
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """tanh(x)."""
        return computed(np.tanh, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise tanh."""
        return eltwise(types, "tanh")
