"""BitwiseAnd: https://onnx.ai/onnx/operators/onnx__BitwiseAnd.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._pairs import Arithmetic


class BitwiseAnd(Arithmetic):
    """The bits of A and B."""

    since = 18
    types = {"T": INTEGERS}
    function = np.bitwise_and
