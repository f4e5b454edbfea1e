"""Asin: https://onnx.ai/onnx/operators/onnx__Asin.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Asin(Function):
    """The angle in radians, from -pi/2 to pi/2, whose sine is x."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.arcsin
