"""ReduceSum: the sum over axes. https://onnx.ai/onnx/operators/onnx__ReduceSum.html"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail_ops_onnx._reduce import Reduction, parts_of_line, sums_of_lines
from dovetail_ops_onnx._types import Array


class ReduceSum(Reduction):
    """reduced = the sum of data over `axes`; see `Reduction`."""

    ufunc = np.add

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)

    def takes_lines(self, length: int) -> bool:
        return parts_of_line(length) > 0

    def long_lines(self, lines: Array, dst: Array) -> Callable[[], object]:
        return sums_of_lines(lines, dst)
