"""Asinh: https://onnx.ai/onnx/operators/onnx__Asinh.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Asinh(Function):
    """The number whose hyperbolic sine is x."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.arcsinh
