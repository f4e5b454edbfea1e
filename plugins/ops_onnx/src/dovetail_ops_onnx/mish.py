"""Mish: https://onnx.ai/onnx/operators/onnx__Mish.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise, softplus


class Mish(Function):
    """x * tanh(log(1 + exp(x)))."""

    since = 18
    function = staticmethod(lambda v: v * np.tanh(softplus(v)))  # without overflow
    post_ops = as_eltwise("mish")
