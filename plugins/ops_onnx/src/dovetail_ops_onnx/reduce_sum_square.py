"""ReduceSumSquare: the sum of squares over axes. https://onnx.ai/onnx/operators/onnx__ReduceSumSquare.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceSumSquare(Reduction):
    """reduced = the sum of squares of data over `axes`; see `Reduction`."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.sum(x * x, axis=axes, keepdims=True, dtype=x.dtype)
