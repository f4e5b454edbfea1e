"""ReduceL1: the sum of absolute values over axes. https://onnx.ai/onnx/operators/onnx__ReduceL1.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceL1(Reduction):
    """reduced = the sum of absolute values of data over `axes`; see `Reduction`."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.sum(np.abs(x), axis=axes, keepdims=True, dtype=x.dtype)
