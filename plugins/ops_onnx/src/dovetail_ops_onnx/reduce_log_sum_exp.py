"""ReduceLogSumExp: the logarithm of the sum of exponentials over axes. https://onnx.ai/onnx/operators/onnx__ReduceLogSumExp.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._numerics import is_float
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceLogSumExp(Reduction):
    """reduced = the logarithm of the sum of exponentials of data over `axes`; see `Reduction`.

    Computed relative to the largest element, so that no finite input overflows.
    Integers (before version 28): in float64, cut off.
    """

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        wide = x if is_float(x) else x.astype(np.float64)
        largest = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
        origin = np.where(np.isinf(largest), np.zeros_like(largest), largest)
        return np.log(np.sum(np.exp(wide - origin), axis=axes, keepdims=True)) + origin
