"""BitwiseXor: https://onnx.ai/onnx/operators/onnx__BitwiseXor.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._pairs import Arithmetic


class BitwiseXor(Arithmetic):
    """The bits of A xor B."""

    since = 18
    types = {"T": INTEGERS}
    function = np.bitwise_xor
