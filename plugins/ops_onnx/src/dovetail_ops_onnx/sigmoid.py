"""Sigmoid: https://onnx.ai/onnx/operators/onnx__Sigmoid.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Sigmoid(Function):
    """The logistic function 1 / (1 + exp(-x))."""

    propagates_nan = True
    function = staticmethod(lambda v: 1 / (1 + np.exp(-v)))  # an overflow of exp gives 0, as it should
    post_ops = as_eltwise("logistic")
