"""Round: https://onnx.ai/onnx/operators/onnx__Round.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Round(Operator):
    """The nearest integer; halves go to the even one."""

    since = 11
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """rint(x)."""
        return computed(np.rint, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise round."""
        return eltwise(types, "round")
