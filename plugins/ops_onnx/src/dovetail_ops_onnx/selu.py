"""Selu: https://onnx.ai/onnx/operators/onnx__Selu.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import Function, eltwise
from dovetail_ops_onnx._types import Array, Chain, Types


class Selu(Function):
    """gamma * x where x is positive, else gamma * alpha * (exp(x) - 1)."""

    alpha: float = 1.6732631921768188
    gamma: float = 1.0507010221481323

    def function(self, x: Array) -> Any:
        """gamma * (x where x > 0, else alpha * expm1(x))."""
        return self.gamma * np.where(x > 0, x, self.alpha * np.expm1(x))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise elu, scaled by gamma."""
        return eltwise(types, "elu", self.alpha, scale=self.gamma)
