"""ReduceSum: the sum over axes. https://onnx.ai/onnx/operators/onnx__ReduceSum.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceSum(Reduction):
    """reduced = the sum of data over `axes`; see `Reduction`."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)
