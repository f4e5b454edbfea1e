"""Mish: https://onnx.ai/onnx/operators/onnx__Mish.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise, softplus
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Mish(Operator):
    """x * tanh(log(1 + exp(x)))."""

    since = 18
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """x * tanh(softplus(x)) without overflow."""
        return computed(lambda v: v * np.tanh(softplus(v)), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise mish."""
        return eltwise(types, "mish")
