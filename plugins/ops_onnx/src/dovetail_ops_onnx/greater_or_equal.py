"""GreaterOrEqual: https://onnx.ai/onnx/operators/onnx__GreaterOrEqual.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import Array


class GreaterOrEqual(Predicate):
    """True where A is greater than B or equal to it."""

    since = 12

    def reference(self, a: Array, b: Array) -> Array:
        """a >= b."""
        return computed(np.greater_equal, a, b, dtype=np.bool_)
