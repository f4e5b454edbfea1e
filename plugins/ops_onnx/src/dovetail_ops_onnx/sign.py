"""Sign: https://onnx.ai/onnx/operators/onnx__Sign.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import NUMERIC, Array, Chain, Types


class Sign(Operator):
    """-1, 0 or 1 by the sign of each element; NaN stays NaN."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": NUMERIC}
    in_place = True

    def reference(self, x: Array) -> Array:
        """sign(x)."""
        return computed(np.sign, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise sign."""
        return eltwise(types, "sign")
