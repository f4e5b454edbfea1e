"""Cosh: https://onnx.ai/onnx/operators/onnx__Cosh.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Cosh(Function):
    """Hyperbolic cosine."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.cosh
