"""Less: https://onnx.ai/onnx/operators/onnx__Less.html."""

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail.ops._elementwise import broadcast, computed
from dovetail.ops._types import BOOL, NUMERIC, Array


class Less(Operator):
    """True where A is less than B."""

    since = 7
    inputs = ("A: T", "B: T")
    outputs = ("C: T1",)
    types = {"T": NUMERIC, "T1": BOOL}

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """Bools in the shape that both broadcast to."""
        return TensorType(DType.BOOL, broadcast(a, b))

    def reference(self, a: Array, b: Array) -> Array:
        """a < b."""
        return computed(np.less, a, b, dtype=np.bool_)
