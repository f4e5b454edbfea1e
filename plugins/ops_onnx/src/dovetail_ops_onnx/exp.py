"""Exp: https://onnx.ai/onnx/operators/onnx__Exp.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Exp(Operator):
    """e to the power of each element."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """exp(x)."""
        return computed(np.exp, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise exp."""
        return eltwise(types, "exp")
