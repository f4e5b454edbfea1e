"""Div: https://onnx.ai/onnx/operators/onnx__Div.html."""

from typing import Any

import numpy as np

from dovetail_ops_onnx._elementwise import as_binary
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Array


class Div(Arithmetic):
    """A / B; integers are truncated toward zero.

    Where ONNX leaves integers open: x / 0 is 0, and the lowest integer divided by -1 wraps to itself.
    """

    since = 7
    propagates_nan = True
    magnitude = "quotient"

    def function(self, a: Array, b: Array) -> Any:
        """a / b, or trunc(a / b) for integers."""
        return (_truncated if a.dtype.kind in "iu" else np.divide)(a, b)

    post_ops = as_binary("div", "rdiv")


def _truncated(a: Array, b: Array) -> Any:
    if np.minimum.reduce(a, None, initial=0) >= 0 and np.minimum.reduce(b, None, initial=1) > 0:
        return np.floor_divide(a, b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    floored = np.floor_divide(a, divisor)
    inexact = floored * divisor != a
    quotient = floored + (inexact & ((a < 0) != (divisor < 0)))
    return np.where(b == 0, a.dtype.type(0), quotient)
