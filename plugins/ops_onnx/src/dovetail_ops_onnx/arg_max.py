"""ArgMax: the index of the largest element. https://onnx.ai/onnx/operators/onnx__ArgMax.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._arg import ArgReduction
from dovetail_ops_onnx._types import Array


class ArgMax(ArgReduction):
    """reduced = the index of the largest element along `axis`; see `ArgReduction`."""

    extreme = np.maximum

    def position(self, x: Array, axis: int) -> Any:
        return x.argmax(axis)
