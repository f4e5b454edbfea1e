"""Acos: https://onnx.ai/onnx/operators/onnx__Acos.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Acos(Function):
    """The angle in radians, from 0 to pi, whose cosine is x."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.arccos
