"""Tan: https://onnx.ai/onnx/operators/onnx__Tan.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Tan(Function):
    """Tangent of an angle in radians."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.tan
