"""Swish: https://onnx.ai/onnx/operators/onnx__Swish.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import Function, eltwise
from dovetail_ops_onnx._types import Array, Chain, Types


class Swish(Function):
    """x / (1 + exp(-alpha * x))."""

    since = 24
    alpha: float = 1.0

    def function(self, x: Array) -> Any:
        """x / (1 + exp(-alpha * x))."""
        return x / (1 + np.exp(-self.alpha * x))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise swish."""
        return eltwise(types, "swish", self.alpha)
