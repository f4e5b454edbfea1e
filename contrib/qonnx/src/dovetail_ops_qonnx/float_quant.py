"""FloatQuant: numbers to floats of few bits and back. https://github.com/fastmachinelearning/qonnx"""

import numpy as np

from dovetail.op import DType, GraphBuilder, OperatorError, TensorType, Translation
from dovetail_ops_onnx.bit_cast import BitCast
from dovetail_ops_onnx.bitwise_and import BitwiseAnd
from dovetail_ops_onnx.clip import Clip_6
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.where import Where
from dovetail_ops_qonnx._base import BITS, BREVITAS, QonnxOperator, elementwise, node, single, width
from dovetail_ops_qonnx._rounding import check_rounding, rounded

__all__ = ["FloatQuant"]

_EXPONENT = 0x7F800000
"""The bits of a float32 that hold its exponent: as a float, the power of 2 below the magnitude, or 0 for subnormal numbers."""


class FloatQuant(QonnxOperator):
    """x / scale rounded to a float with so many bits of exponent and mantissa, and multiplied by `scale`, which broadcasts to x.

    The format has a sign and subnormal numbers. Its largest number is that of the greatest exponent and mantissa, or `max_val`
    if that is less. Numbers beyond are limited to it; without `saturation` they are infinite if the format `has_inf`, else NaN.
    All parameters but `scale` are constants of one element. `has_subnormal` changes nothing, as in QONNX.
    """

    inputs = ("x: T", "scale: T", "exponent_bitwidth: B", "mantissa_bitwidth: B", "exponent_bias: B", "max_val: B")
    outputs = ("y: T",)
    types = {"T": frozenset({DType.FLOAT32}), "B": BITS}
    translations = (Translation(domain=BREVITAS, op_type="FloatQuant"),)
    rounding_mode: str = "ROUND"
    has_inf: bool = False
    has_nan: bool = False
    has_subnormal: bool = False
    saturation: bool = True

    def __post_init__(self) -> None:
        check_rounding(self.rounding_mode)
        if not (self.saturation or self.has_inf or self.has_nan):
            raise OperatorError("without 'saturation', 'has_inf' and 'has_nan' are 0; accepted: one of the three")

    def infer(self, x: TensorType, scale: TensorType, *layout: TensorType) -> TensorType:
        """The type of x."""
        for name, parameter in zip(("exponent_bitwidth", "mantissa_bitwidth", "exponent_bias"), layout[:3], strict=True):
            width(parameter, name)
        single(layout[3], "max_val")
        return elementwise(x, scale=scale)

    def compose(self, g: GraphBuilder, x: str, scale: str, *layout: str) -> str:
        """The power of 2 below each number gives the distance of the floats around it."""
        exponent, mantissa, bias, largest = (single(g.given(name), "layout") for name in layout)
        with np.errstate(over="ignore"):
            most = np.minimum(np.exp2(2**exponent - 1 - bias) * (2 - np.exp2(-mantissa)), largest)
        value = node(g, Div(), x, scale)
        bits = node(g, BitwiseAnd(), node(g, BitCast(to=DType.INT32), value), g.constant(_EXPONENT, DType.INT32))
        power = node(g, Max(), node(g, BitCast(to=DType.FLOAT32), bits), g.constant(np.exp2(1 - bias), DType.FLOAT32))
        step = node(g, Mul(), power, g.constant(np.exp2(-mantissa), DType.FLOAT32))
        near = node(g, Mul(), rounded(g, node(g, Div(), value, step), self.rounding_mode, x), step)
        kept = node(g, Clip_6(min=-float(most), max=float(most)), near)
        if not self.saturation:
            kept = self._beyond(g, near, kept, g.constant(most, DType.FLOAT32), g.constant(-most, DType.FLOAT32))
        return node(g, Mul(), kept, scale)

    def _beyond(self, g: GraphBuilder, near: str, kept: str, most: str, least: str) -> str:
        for is_beyond, limit, sign in ((Greater(), most, 1), (Less(), least, -1)):
            code = g.constant(sign * np.inf if self.has_inf else np.nan, DType.FLOAT32)
            kept = node(g, Where(), node(g, is_beyond, near, limit), code, kept)
        return kept
