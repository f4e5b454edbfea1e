"""Log: https://onnx.ai/onnx/operators/onnx__Log.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Log(Operator):
    """Natural logarithm; NaN below 0, -infinity at 0."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """log(x)."""
        return computed(np.log, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise log."""
        return eltwise(types, "log")
