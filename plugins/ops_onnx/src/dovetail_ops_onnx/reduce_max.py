"""ReduceMax: the largest element over axes. https://onnx.ai/onnx/operators/onnx__ReduceMax.html"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.op import DType
from dovetail_ops_onnx._numerics import lowest
from dovetail_ops_onnx._reduce import REDUCIBLE, Reduction, extremes_of_lines, longest_turned_extreme
from dovetail_ops_onnx._types import Array


class ReduceMax(Reduction):
    """reduced = the largest element of data over `axes`; see `Reduction`.

    NaN wins over every number; no elements give -inf, the smallest integer, or False.
    """

    ufunc = np.maximum
    types = {"T": REDUCIBLE | {DType.INT8, DType.UINT8, DType.BOOL}}

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.maximum.reduce(x, axis=axes, keepdims=True, initial=lowest(x.dtype))

    def takes_lines(self, length: int) -> bool:
        return True

    def longest_turned(self, dtype: DType) -> int:
        return longest_turned_extreme(dtype)

    def long_lines(self, lines: Array, dst: Array) -> Callable[[], object]:
        return extremes_of_lines(lines.argmax, lines, dst)
