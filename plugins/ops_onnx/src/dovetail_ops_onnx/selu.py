"""Selu: https://onnx.ai/onnx/operators/onnx__Selu.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Selu(Operator):
    """gamma * x where x is positive, else gamma * alpha * (exp(x) - 1)."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    alpha: float = 1.6732631921768188
    gamma: float = 1.0507010221481323

    def reference(self, x: Array) -> Array:
        """gamma * (x where x > 0, else alpha * expm1(x))."""
        return computed(lambda v: self.gamma * np.where(v > 0, v, self.alpha * np.expm1(v)), x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise elu, scaled by gamma."""
        return eltwise(types, "elu", self.alpha, scale=self.gamma)
