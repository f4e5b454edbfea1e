"""Atan: https://onnx.ai/onnx/operators/onnx__Atan.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Atan(Function):
    """The angle in radians, from -pi/2 to pi/2, whose tangent is x."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.arctan
