"""Greater: https://onnx.ai/onnx/operators/onnx__Greater.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import Array


class Greater(Predicate):
    """True where A is greater than B."""

    since = 7

    def reference(self, a: Array, b: Array) -> Array:
        """a > b."""
        return computed(np.greater, a, b, dtype=np.bool_)
