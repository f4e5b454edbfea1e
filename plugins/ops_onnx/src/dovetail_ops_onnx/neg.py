"""Neg: https://onnx.ai/onnx/operators/onnx__Neg.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import SIGNED


class Neg(Function):
    """-x; the lowest integer stays as it is (it wraps)."""

    types = {"T": SIGNED}
    function = np.negative
    post_ops = as_eltwise("linear", -1.0, 0.0)
