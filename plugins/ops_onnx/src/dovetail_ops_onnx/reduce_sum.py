"""ReduceSum: the sum over axes. https://onnx.ai/onnx/operators/onnx__ReduceSum.html"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dovetail_ops_onnx._reduce import EXACT, Reduction, sums_of_lines
from dovetail_ops_onnx._types import Array


class ReduceSum(Reduction):
    """reduced = the sum of data over `axes`; see `Reduction`."""

    longest_line: ClassVar[int] = EXACT

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)

    def lines_step(self, lines: Array, dst: Array) -> Callable[[], object]:
        return sums_of_lines(lines, dst)
