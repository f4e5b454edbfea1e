"""Reciprocal: https://onnx.ai/onnx/operators/onnx__Reciprocal.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Reciprocal(Function):
    """1 / x."""

    function = np.reciprocal  # a zero gives an infinity of its sign
    post_ops = as_eltwise("pow", 1.0, -1.0)
