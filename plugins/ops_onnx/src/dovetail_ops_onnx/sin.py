"""Sin: https://onnx.ai/onnx/operators/onnx__Sin.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Sin(Function):
    """Sine of an angle in radians."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.sin
    post_ops = as_eltwise("sin")
