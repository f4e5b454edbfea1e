"""Log: https://onnx.ai/onnx/operators/onnx__Log.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Log(Function):
    """Natural logarithm; NaN below 0, -infinity at 0."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.log
    post_ops = as_eltwise("log")
