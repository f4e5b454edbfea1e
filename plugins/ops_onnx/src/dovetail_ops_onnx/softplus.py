"""Softplus: https://onnx.ai/onnx/operators/onnx__Softplus.html."""

from collections.abc import Sequence

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed, eltwise, softplus
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Softplus(Operator):
    """log(1 + exp(x))."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """log(exp(0) + exp(x)) without overflow."""
        return computed(softplus, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise soft_relu."""
        return eltwise(types, "soft_relu", 1.0)
