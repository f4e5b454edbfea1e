"""Acosh: https://onnx.ai/onnx/operators/onnx__Acosh.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Acosh(Function):
    """The number of 0 or more whose hyperbolic cosine is x."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.arccosh
