"""Not: https://onnx.ai/onnx/operators/onnx__Not.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function
from dovetail_ops_onnx._types import BOOL


class Not(Function):
    """Logical negation."""

    types = {"T": BOOL}
    function = np.logical_not
