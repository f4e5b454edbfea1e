"""Erf: https://onnx.ai/onnx/operators/onnx__Erf.html."""

from collections.abc import Sequence

from dovetail.op import Operator, erf
from dovetail_ops_onnx._elementwise import computed, eltwise
from dovetail_ops_onnx._types import NUMERIC, Array, Chain, Types


class Erf(Operator):
    """The error function."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": NUMERIC}
    in_place = True

    def reference(self, x: Array) -> Array:
        """erf(x), computed in float64."""
        return computed(erf, x)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise erf."""
        return eltwise(types, "erf")
