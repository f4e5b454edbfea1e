"""LessOrEqual: https://onnx.ai/onnx/operators/onnx__LessOrEqual.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import Array


class LessOrEqual(Predicate):
    """True where A is less than B or equal to it."""

    since = 12

    def reference(self, a: Array, b: Array) -> Array:
        """a <= b."""
        return computed(np.less_equal, a, b, dtype=np.bool_)
