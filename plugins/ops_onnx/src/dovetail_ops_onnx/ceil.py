"""Ceil: https://onnx.ai/onnx/operators/onnx__Ceil.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Ceil(Function):
    """The smallest integer not below each element."""

    function = np.ceil
    post_ops = as_eltwise("ceil")
