"""ReduceLogSum: the logarithm of the sum over axes. https://onnx.ai/onnx/operators/onnx__ReduceLogSum.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._numerics import is_float
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceLogSum(Reduction):
    """reduced = the logarithm of the sum of data over `axes`; see `Reduction`.

    Integers (before version 28): computed in float64 and cut off.
    """

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.log(np.sum(x if is_float(x) else x.astype(np.float64), axis=axes, keepdims=True))
