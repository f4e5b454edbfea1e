"""ReduceProd: the product over axes. https://onnx.ai/onnx/operators/onnx__ReduceProd.html"""

from typing import Any

import numpy as np

from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array


class ReduceProd(Reduction):
    """reduced = the product of data over `axes`; see `Reduction`."""

    ufunc = np.multiply

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.prod(x, axis=axes, keepdims=True, dtype=x.dtype)
