"""HardSigmoid: https://onnx.ai/onnx/operators/onnx__HardSigmoid.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class HardSigmoid(Operator):
    """max(0, min(1, alpha * x + beta))."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    alpha: float = 0.2
    beta: float = 0.5

    def reference(self, x: Array) -> Array:
        """max(0, min(1, alpha * x + beta)); NaN stays NaN."""
        return computed(lambda v: np.clip(self.alpha * v + self.beta, 0, 1), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise hardsigmoid."""
        return eltwise(types, "hardsigmoid", self.alpha, self.beta)
