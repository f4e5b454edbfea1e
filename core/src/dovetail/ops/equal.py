"""Equal: https://onnx.ai/onnx/operators/onnx__Equal.html."""

import numpy as np

from dovetail.ops._elementwise import computed
from dovetail.ops._pairs import Predicate
from dovetail.ops._types import BOOL, COMMON, Array


class Equal(Predicate):
    """True where A equals B; NaN equals nothing."""

    since = 7
    types = {"T": COMMON, "T1": BOOL}

    def reference(self, a: Array, b: Array) -> Array:
        """a == b."""
        return computed(np.equal, a, b, dtype=np.bool_)
