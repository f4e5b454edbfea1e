"""Sinh: https://onnx.ai/onnx/operators/onnx__Sinh.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Sinh(Function):
    """Hyperbolic sine."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.sinh
