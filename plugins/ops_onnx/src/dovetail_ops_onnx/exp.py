"""Exp: https://onnx.ai/onnx/operators/onnx__Exp.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Exp(Function):
    """e to the power of each element."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    function = np.exp
    post_ops = as_eltwise("exp")
