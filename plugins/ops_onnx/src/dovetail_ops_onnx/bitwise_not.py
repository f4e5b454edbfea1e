"""BitwiseNot: https://onnx.ai/onnx/operators/onnx__BitwiseNot.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._elementwise import Function


class BitwiseNot(Function):
    """Every bit turned over."""

    since = 18
    types = {"T": INTEGERS}
    function = np.bitwise_not
