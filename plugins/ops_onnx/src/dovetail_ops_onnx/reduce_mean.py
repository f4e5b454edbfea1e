"""ReduceMean: the arithmetic mean over axes. https://onnx.ai/onnx/operators/onnx__ReduceMean.html"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail_ops_onnx._numerics import is_float
from dovetail_ops_onnx._reduce import LINES, Reduction, parts_of_line, sums_of_lines
from dovetail_ops_onnx._types import Array


class ReduceMean(Reduction):
    """reduced = the arithmetic mean of data over `axes`; see `Reduction`.

    Integers: the sum wraps, the quotient is cut off. NaN for floats for zero elements.
    """

    magnitude = "sum"
    ufunc = np.add
    turned = LINES  # `lines_step` divides as floats do

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        total = np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)
        count = math.prod(x.shape[a] for a in axes)
        if is_float(x):
            return total / np.asarray(count, x.dtype)
        return np.sign(total) * (np.abs(total) // np.asarray(count, x.dtype))

    def takes_lines(self, length: int) -> bool:
        return parts_of_line(length) > 0

    def long_lines(self, lines: Array, dst: Array) -> Callable[[], object]:
        return sums_of_lines(lines, dst)

    def lines_step(self, lines: Array, dst: Array) -> Callable[[], object]:
        add_up, count = super().lines_step(lines, dst), np.asarray(lines.shape[1], lines.dtype)

        def run() -> None:
            add_up()
            np.divide(dst, count, dst)

        return run
