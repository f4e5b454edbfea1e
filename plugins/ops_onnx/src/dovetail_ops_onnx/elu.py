"""Elu: https://onnx.ai/onnx/operators/onnx__Elu.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import Function, eltwise
from dovetail_ops_onnx._types import Array, Chain, Types


class Elu(Function):
    """x where x is positive, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0

    def function(self, x: Array) -> Any:
        """x where x > 0, else alpha * expm1(x)."""
        return np.where(x > 0, x, self.alpha * np.expm1(x))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise elu."""
        return eltwise(types, "elu", self.alpha)
