"""Abs: https://onnx.ai/onnx/operators/onnx__Abs.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import NUMERIC


class Abs(Function):
    """Absolute value; the lowest signed integer stays as it is (it wraps)."""

    types = {"T": NUMERIC}
    function = np.abs
    post_ops = as_eltwise("abs")
