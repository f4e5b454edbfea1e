"""Atanh: https://onnx.ai/onnx/operators/onnx__Atanh.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Atanh(Function):
    """The number whose hyperbolic tangent is x."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.arctanh
