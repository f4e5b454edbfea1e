"""ReduceSumSquare: the sum of squares over axes. https://onnx.ai/onnx/operators/onnx__ReduceSumSquare.html"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.ops._reduce import Reduction


class ReduceSumSquare(Reduction):
    """reduced = the sum of squares of data over `axes`; see `Reduction`."""

    def reduce(self, x: NDArray[Any], axes: tuple[int, ...]) -> Any:
        return np.sum(x * x, axis=axes, keepdims=True, dtype=x.dtype)
