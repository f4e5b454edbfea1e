"""LeakyRelu: https://onnx.ai/onnx/operators/onnx__LeakyRelu.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import Function, eltwise
from dovetail_ops_onnx._types import Array, Chain, Types


class LeakyRelu(Function):
    """x where x is not negative, else alpha * x."""

    alpha: float = 0.01

    def function(self, x: Array) -> Any:
        """x where x >= 0, else alpha * x."""
        return np.where(x >= 0, x, self.alpha * x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise relu with a slope."""
        return eltwise(types, "relu", self.alpha)
