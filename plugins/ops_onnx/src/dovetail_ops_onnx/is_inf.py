"""IsInf: https://onnx.ai/onnx/operators/onnx__IsInf.html."""

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import BOOL, FLOATS, Array


class IsInf(Operator):
    """True where an element is infinite, of the signs that are looked for."""

    since = 10
    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {
        "T1": FLOATS | {DType.FLOAT8_E4M3FN, DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2, DType.FLOAT8_E5M2FNUZ},
        "T2": BOOL,
    }

    detect_negative: bool = True
    detect_positive: bool = True

    def infer(self, x: TensorType) -> TensorType:
        """Bools in the input's shape."""
        return x.with_dtype(DType.BOOL)

    def reference(self, x: Array) -> Array:
        """isinf(x), restricted to the signs."""
        if self.detect_negative and self.detect_positive:
            if x.dtype == np.float16:
                return np.asarray((x.view(np.uint16) & np.uint16(0x7FFF)) == 0x7C00)
            return computed(np.isinf, x, dtype=np.bool_)
        if not self.detect_negative and not self.detect_positive:
            return np.zeros(x.shape, np.bool_)
        return computed(lambda v: v == (np.inf if self.detect_positive else -np.inf), x, dtype=np.bool_)
