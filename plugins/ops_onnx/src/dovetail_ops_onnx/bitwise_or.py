"""BitwiseOr: https://onnx.ai/onnx/operators/onnx__BitwiseOr.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._pairs import Arithmetic


class BitwiseOr(Arithmetic):
    """The bits of A or B."""

    since = 18
    types = {"T": INTEGERS}
    function = np.bitwise_or
