"""Relu: https://onnx.ai/onnx/operators/onnx__Relu.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import SIGNED


class Relu(Function):
    """The larger of each element and 0."""

    propagates_nan = True
    magnitude = "sum"
    types = {"T": SIGNED}
    function = staticmethod(lambda v: np.maximum(v, v.dtype.type(0)))  # NaN stays NaN
    post_ops = as_eltwise("relu")
