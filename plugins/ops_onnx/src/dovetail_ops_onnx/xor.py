"""Xor: https://onnx.ai/onnx/operators/onnx__Xor.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL, Array


class Xor(Predicate):
    """Logical exclusive or."""

    since = 7
    types = {"T": BOOL, "T1": BOOL}
    in_place = True

    def reference(self, a: Array, b: Array) -> Array:
        """True where a and b differ."""
        return computed(np.logical_xor, a, b, dtype=np.bool_)
