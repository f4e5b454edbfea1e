"""Quant: numbers to integers of any number of bits and back. https://github.com/fastmachinelearning/qonnx"""

from dovetail.op import FLOATS, GraphBuilder, OperatorError, TensorType, Translation
from dovetail_ops_onnx.clip import Clip_6
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual
from dovetail_ops_onnx.where import Where
from dovetail_ops_qonnx._base import BITS, BREVITAS, QonnxOperator, elementwise, limits, node, offset, real, whole, width
from dovetail_ops_qonnx._rounding import check_rounding, rounded

__all__ = ["Quant"]


class Quant(QonnxOperator):
    """y = (round(clip(x / scale + zeropt, least, greatest)) - zeropt) * scale, with the limits of integers of `bitwidth` bits.

    `scale` and `zeropt` broadcast to x; `bitwidth` is a constant of one element, and need not be whole. `signed` integers
    have a sign; `narrow` ones have one number fewer, so that those with a sign are symmetric. One bit with a sign is -1 or 1.
    QONNX also calls it IntQuant.
    """

    inputs = ("x: T", "scale: T", "zeropt: T", "bitwidth: B")
    outputs = ("y: T",)
    types = {"T": FLOATS, "B": BITS}
    translations = (
        Translation(domain="qonnx.custom_op.general", op_type="IntQuant"),
        Translation(domain=BREVITAS, op_type="Quant"),
    )
    signed: bool = True
    narrow: bool = True
    rounding_mode: str = "ROUND"

    def __post_init__(self) -> None:
        check_rounding(self.rounding_mode)

    def infer(self, x: TensorType, scale: TensorType, zeropt: TensorType, bitwidth: TensorType) -> TensorType:
        """The type of x."""
        if (bits := width(bitwidth, "bitwidth")) <= 0:
            raise OperatorError(f"input 'bitwidth' is {bits}; accepted: numbers above 0")
        return elementwise(x, scale=scale, zeropt=zeropt)

    def compose(self, g: GraphBuilder, x: str, scale: str, zeropt: str, bitwidth: str) -> str:
        """A quotient, limited, rounded and multiplied again."""
        bits, zeropt = width(g.given(bitwidth), "bitwidth"), offset(g, zeropt)
        moved = whole(g, x, scale, zeropt)
        if bits == 1 and self.signed:
            zero, one, minus = (g.constant(number, g.given(x).dtype) for number in (0, 1, -1))
            stored = node(g, Where(), node(g, GreaterOrEqual(), moved, zero), one, minus)
        else:
            low, high = limits(bits, signed=self.signed, narrow=self.narrow)
            stored = rounded(g, node(g, Clip_6(min=low, max=high), moved), self.rounding_mode, x)
        return real(g, stored, scale, zeropt)
