"""Equal: https://onnx.ai/onnx/operators/onnx__Equal.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL, COMMON


class Equal(Predicate):
    """True where A equals B; NaN equals nothing."""

    since = 7
    types = {"T": COMMON, "T1": BOOL}
    function = np.equal
