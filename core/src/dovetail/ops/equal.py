"""Equal: https://onnx.ai/onnx/operators/onnx__Equal.html."""

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail.ops._elementwise import broadcast, computed
from dovetail.ops._types import BOOL, COMMON, Array


class Equal(Operator):
    """True where A equals B; NaN equals nothing."""

    since = 7
    inputs = ("A: T", "B: T")
    outputs = ("C: T1",)
    types = {"T": COMMON, "T1": BOOL}

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """Bools in the shape that both broadcast to."""
        return TensorType(DType.BOOL, broadcast(a, b))

    def reference(self, a: Array, b: Array) -> Array:
        """a == b."""
        return computed(np.equal, a, b, dtype=np.bool_)
