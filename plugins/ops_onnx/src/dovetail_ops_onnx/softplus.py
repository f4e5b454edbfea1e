"""Softplus: https://onnx.ai/onnx/operators/onnx__Softplus.html."""

from dovetail_ops_onnx._elementwise import Function, as_eltwise, softplus


class Softplus(Function):
    """log(1 + exp(x))."""

    function = staticmethod(softplus)  # without overflow
    post_ops = as_eltwise("soft_relu", 1.0)
