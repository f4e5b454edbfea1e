"""Sqrt: https://onnx.ai/onnx/operators/onnx__Sqrt.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Sqrt(Function):
    """Square root; NaN below 0."""

    function = np.sqrt
    post_ops = as_eltwise("sqrt")
