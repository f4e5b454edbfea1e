"""Or: https://onnx.ai/onnx/operators/onnx__Or.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL, Array


class Or(Predicate):
    """Logical or."""

    since = 7
    types = {"T": BOOL, "T1": BOOL}
    in_place = True

    def reference(self, a: Array, b: Array) -> Array:
        """a or b."""
        return computed(np.logical_or, a, b, dtype=np.bool_)
