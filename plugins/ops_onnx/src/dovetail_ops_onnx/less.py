"""Less: https://onnx.ai/onnx/operators/onnx__Less.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import Array


class Less(Predicate):
    """True where A is less than B."""

    since = 7

    def reference(self, a: Array, b: Array) -> Array:
        """a < b."""
        return computed(np.less, a, b, dtype=np.bool_)
