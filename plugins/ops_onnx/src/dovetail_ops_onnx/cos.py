"""Cos: https://onnx.ai/onnx/operators/onnx__Cos.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Cos(Function):
    """Cosine of an angle in radians."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.cos
    post_ops = as_eltwise("cos")
