"""Softsign: https://onnx.ai/onnx/operators/onnx__Softsign.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function


class Softsign(Function):
    """x / (1 + |x|)."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    function = staticmethod(lambda v: v / (1 + np.abs(v)))
