"""HardSigmoid: https://onnx.ai/onnx/operators/onnx__HardSigmoid.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import Function, eltwise
from dovetail_ops_onnx._types import Array, Chain, Types


class HardSigmoid(Function):
    """max(0, min(1, alpha * x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5

    def function(self, x: Array) -> Any:
        """max(0, min(1, alpha * x + beta)); NaN stays NaN."""
        return np.clip(self.alpha * x + self.beta, 0, 1)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise hardsigmoid."""
        return eltwise(types, "hardsigmoid", self.alpha, self.beta)
