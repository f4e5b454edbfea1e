"""ReduceProd: the product over axes. https://onnx.ai/onnx/operators/onnx__ReduceProd.html"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.ops._reduce import Reduction


class ReduceProd(Reduction):
    """reduced = the product of data over `axes`; see `Reduction`."""

    def reduce(self, x: NDArray[Any], axes: tuple[int, ...]) -> Any:
        return np.prod(x, axis=axes, keepdims=True, dtype=x.dtype)
