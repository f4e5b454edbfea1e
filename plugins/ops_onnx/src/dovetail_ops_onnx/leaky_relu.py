"""LeakyRelu: https://onnx.ai/onnx/operators/onnx__LeakyRelu.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class LeakyRelu(Operator):
    """x where x is not negative, else alpha * x."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    alpha: float = 0.01

    def reference(self, x: Array) -> Array:
        """x where x >= 0, else alpha * x."""
        return computed(lambda v: np.where(v >= 0, v, self.alpha * v), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise relu with a slope."""
        return eltwise(types, "relu", self.alpha)
