"""Mod: https://onnx.ai/onnx/operators/onnx__Mod.html."""

from typing import Any

import numpy as np

from dovetail.op import OperatorError, TensorType
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Array


class Mod(Arithmetic):
    """The remainder of A / B: with the sign of B, or with the sign of A when `fmod` is set.

    Where ONNX leaves integers open: the remainder of a division by 0 is 0.
    """

    since = 28
    fmod: bool = False

    def function(self, a: Array, b: Array) -> Any:
        """a - floor(a / b) * b, or a - trunc(a / b) * b with `fmod`."""
        return (np.fmod if self.fmod else np.mod)(a, b)


class Mod_10(Mod):
    """Mod before floating-point numbers were allowed without `fmod`."""

    since = 10

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """As Mod. Raises `OperatorError` for floating-point inputs without `fmod`."""
        if a.dtype.is_float and not self.fmod:
            raise OperatorError(f"attribute 'fmod' is 0 for {a.dtype} inputs; accepted: 1", hint="or operator set 28")
        return super().infer(a, b)
