"""Less: https://onnx.ai/onnx/operators/onnx__Less.html."""

import numpy as np

from dovetail.ops._elementwise import computed
from dovetail.ops._pairs import Predicate
from dovetail.ops._types import Array


class Less(Predicate):
    """True where A is less than B."""

    since = 7

    def reference(self, a: Array, b: Array) -> Array:
        """a < b."""
        return computed(np.less, a, b, dtype=np.bool_)
