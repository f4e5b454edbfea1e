"""CumProd: https://onnx.ai/onnx/operators/onnx__CumProd.html."""

import numpy as np

from dovetail_ops_onnx._cumulative import Cumulative
from dovetail_ops_onnx._types import Array


class CumProd(Cumulative):
    """The products of all elements up to each one along an axis: without itself when `exclusive`, from the end when `reverse`."""

    since = 26
    neutral = 1

    def accumulate(self, rows: Array) -> Array:
        """Running products."""
        return np.cumprod(rows, 0, dtype=rows.dtype)
