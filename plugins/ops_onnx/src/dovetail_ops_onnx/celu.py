"""Celu: https://onnx.ai/onnx/operators/onnx__Celu.html."""

from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import Function
from dovetail_ops_onnx._types import Array


class Celu(Function):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    since = 12
    alpha: float = 1.0

    def function(self, x: Array) -> Any:
        """x where x > 0, else alpha * expm1(x / alpha); NaN stays NaN."""
        return np.where(x > 0, x, self.alpha * np.expm1(x / self.alpha))
