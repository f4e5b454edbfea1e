"""Tanh: https://onnx.ai/onnx/operators/onnx__Tanh.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Tanh(Function):
    """Hyperbolic tangent."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    propagates_nan = True
    function = np.tanh
    post_ops = as_eltwise("tanh")
