"""Erf: https://onnx.ai/onnx/operators/onnx__Erf.html."""

from dovetail.op import erf
from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import NUMERIC


class Erf(Function):
    """The error function."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": NUMERIC}
    function = staticmethod(erf)  # in float64
    post_ops = as_eltwise("erf")
