"""Gelu: https://onnx.ai/onnx/operators/onnx__Gelu.html."""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import OperatorError, erf
from dovetail_ops_onnx._elementwise import Function, eltwise
from dovetail_ops_onnx._types import Array, Chain, Types


class Gelu(Function):
    """x times the normal distribution's cumulative function at x, exactly or in the tanh approximation."""

    since = 20
    approximate: str = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise OperatorError(f"attribute 'approximate' is {self.approximate!r}; accepted: 'none', 'tanh'")

    def function(self, x: Array) -> Array:
        """0.5 * x * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2/pi) * (x + 0.044715 * x^3)) in place of erf."""
        return _exact(x) if self.approximate == "none" else _approximate(x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise gelu_erf or gelu_tanh."""
        return eltwise(types, "gelu_erf" if self.approximate == "none" else "gelu_tanh")


# Both in float64, because 1 + erf cancels for negative x.
def _exact(x: Array) -> Array:
    wide = x.astype(np.float64)
    result: Array = 0.5 * wide * (1 + erf(wide / math.sqrt(2)))
    return result


def _approximate(x: Array) -> Array:
    wide = x.astype(np.float64)
    result: Array = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    return result
