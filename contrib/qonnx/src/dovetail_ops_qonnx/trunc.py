"""Trunc: integers with fewer bits. https://github.com/fastmachinelearning/qonnx"""

import math

from dovetail.op import FLOATS, GraphBuilder, OperatorError, TensorType, Translation
from dovetail_ops_onnx.clip import Clip_6
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.round import Round
from dovetail_ops_qonnx._base import (
    BITS,
    BREVITAS,
    QonnxOperator,
    elementwise,
    limits,
    node,
    offset,
    real,
    single,
    whole,
    width,
)
from dovetail_ops_qonnx._rounding import check_rounding, rounded

__all__ = ["Trunc", "Trunc_1"]


class Trunc(QonnxOperator):
    """y = (round(clip(q / t, least, greatest)) - zeropt / t) * out_scale, where q = round(x / scale + zeropt), halves to even.

    t is the power of 2 nearest to out_scale / scale; the limits are those of integers of `out_bitwidth` bits. `scale` and
    `zeropt` broadcast to x; scales and numbers of bits are constants, all but `scale` of one element.
    """

    since = 2
    inputs = ("x: T", "scale: T", "zeropt: T", "in_bitwidth: B", "out_scale: T", "out_bitwidth: B")
    outputs = ("y: T",)
    types = {"T": FLOATS, "B": BITS}
    rounding_mode: str = "FLOOR"
    signed: bool = True
    narrow: bool = False

    def __post_init__(self) -> None:
        check_rounding(self.rounding_mode)

    def infer(
        self,
        x: TensorType,
        scale: TensorType,
        zeropt: TensorType,
        in_bitwidth: TensorType,
        out_scale: TensorType,
        out_bitwidth: TensorType,
    ) -> TensorType:
        """The type of x."""
        width(out_bitwidth, "out_bitwidth")
        if not all(0 < one < math.inf for one in (single(scale, "scale"), single(out_scale, "out_scale"))):
            raise OperatorError("inputs 'scale' and 'out_scale' are not above 0; accepted: numbers above 0")
        return elementwise(x, scale=scale, zeropt=zeropt, out_scale=out_scale)

    def compose(self, g: GraphBuilder, *names: str) -> str:
        """Quotients, rounded, limited and multiplied again."""
        x, scale, zeropt, _, out_scale, out_bitwidth = names
        power = round(math.log2(single(g.given(out_scale), "out_scale")) - math.log2(single(g.given(scale), "scale")))
        step = g.constant(2.0 ** min(max(power, -1022), 1023), g.given(x).dtype)
        low, high = limits(width(g.given(out_bitwidth), "out_bitwidth"), signed=self.signed, narrow=self.narrow)
        zero = offset(g, zeropt)
        kept = node(g, Div(), node(g, Round(), whole(g, x, scale, zero)), step)
        kept = rounded(g, node(g, Clip_6(min=low, max=high), kept), self.rounding_mode, x)
        return real(g, kept, out_scale, node(g, Div(), zero, step) if zero else "")


class Trunc_1(QonnxOperator):
    """y = (round(q / 2^(in_bitwidth - out_bitwidth)) - zeropt) * scale, where q = round(x / scale + zeropt), halves to even.

    `scale` and `zeropt` broadcast to x; numbers of bits are constants of one element. The scale stays that of the input.
    """

    inputs = ("x: T", "scale: T", "zeropt: T", "in_bitwidth: B", "out_bitwidth: B")
    outputs = ("y: T",)
    types = {"T": FLOATS, "B": BITS}
    translations = (Translation(domain=BREVITAS, op_type="Trunc"),)
    rounding_mode: str = "FLOOR"

    def __post_init__(self) -> None:
        check_rounding(self.rounding_mode)

    def infer(
        self, x: TensorType, scale: TensorType, zeropt: TensorType, in_bitwidth: TensorType, out_bitwidth: TensorType
    ) -> TensorType:
        """The type of x."""
        for name, bits in (("in_bitwidth", in_bitwidth), ("out_bitwidth", out_bitwidth)):
            width(bits, name)
        return elementwise(x, scale=scale, zeropt=zeropt)

    def compose(self, g: GraphBuilder, x: str, scale: str, zeropt: str, in_bitwidth: str, out_bitwidth: str) -> str:
        """A quotient, rounded, divided, rounded and multiplied again."""
        bits = width(g.given(in_bitwidth), "in_bitwidth") - width(g.given(out_bitwidth), "out_bitwidth")
        zero = offset(g, zeropt)
        kept = node(g, Round(), whole(g, x, scale, zero))
        kept = node(g, Div(), kept, g.constant(2.0 ** min(max(bits, -1022), 1023), g.given(x).dtype))
        return real(g, rounded(g, kept, self.rounding_mode, x), scale, zero)
