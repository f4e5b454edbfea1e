"""And: https://onnx.ai/onnx/operators/onnx__And.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL, Array


class And(Predicate):
    """Logical and."""

    since = 7
    types = {"T": BOOL, "T1": BOOL}
    in_place = True

    def reference(self, a: Array, b: Array) -> Array:
        """a and b."""
        return computed(np.logical_and, a, b, dtype=np.bool_)
