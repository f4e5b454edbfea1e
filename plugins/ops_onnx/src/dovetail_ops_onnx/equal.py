"""Equal: https://onnx.ai/onnx/operators/onnx__Equal.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL, COMMON, Array


class Equal(Predicate):
    """True where A equals B; NaN equals nothing."""

    since = 7
    types = {"T": COMMON, "T1": BOOL}

    def reference(self, a: Array, b: Array) -> Array:
        """a == b."""
        return computed(np.equal, a, b, dtype=np.bool_)
