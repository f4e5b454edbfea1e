"""ReduceL2: the Euclidean norm over axes. https://onnx.ai/onnx/operators/onnx__ReduceL2.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._numerics import is_float
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceL2(Reduction):
    """reduced = the Euclidean norm of data over `axes`; see `Reduction`.

    Integers: computed in float64 and cut off.
    """

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        wide = x if is_float(x) else x.astype(np.float64)
        return np.sqrt(np.sum(wide * wide, axis=axes, keepdims=True))
