"""Round: https://onnx.ai/onnx/operators/onnx__Round.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Round(Function):
    """The nearest integer; halves go to the even one."""

    since = 11
    function = np.rint
    post_ops = as_eltwise("round")
