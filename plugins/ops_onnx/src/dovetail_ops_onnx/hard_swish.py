"""HardSwish: https://onnx.ai/onnx/operators/onnx__HardSwish.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class HardSwish(Operator):
    """x * max(0, min(1, x / 6 + 0.5))."""

    since = 14
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """x * max(0, min(1, x / 6 + 0.5)); NaN stays NaN."""
        return computed(lambda v: v * np.clip(v / 6 + 0.5, 0, 1), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise hardswish with alpha 1/6 and beta 1/2."""
        return eltwise(types, "hardswish", 1 / 6, 0.5)
