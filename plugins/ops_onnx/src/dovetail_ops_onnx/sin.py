"""Sin: https://onnx.ai/onnx/operators/onnx__Sin.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Sin(Operator):
    """Sine of an angle in radians."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """sin(x)."""
        return computed(np.sin, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise sin."""
        return eltwise(types, "sin")
