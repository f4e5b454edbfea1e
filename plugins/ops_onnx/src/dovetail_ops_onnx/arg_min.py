"""ArgMin: the index of the smallest element. https://onnx.ai/onnx/operators/onnx__ArgMin.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._arg import ArgReduction
from dovetail_ops_onnx._types import Array


class ArgMin(ArgReduction):
    """reduced = the index of the smallest element along `axis`; see `ArgReduction`."""

    extreme = np.minimum

    def position(self, x: Array, axis: int) -> Any:
        return x.argmin(axis)
