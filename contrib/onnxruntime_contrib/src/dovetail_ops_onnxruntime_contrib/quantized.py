"""Operators on quantized bytes: taken apart into floats between DequantizeLinear and QuantizeLinear."""

from dovetail.op import DType, GraphBuilder, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear as StandardDequantizeLinear
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear as StandardQuantizeLinear
from dovetail_ops_onnxruntime_contrib._base import BYTES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node
from dovetail_ops_onnxruntime_contrib._stored import check_scalars, stored, weights

__all__ = ["DequantizeLinear", "QLinearAdd", "QLinearMul", "QuantizeLinear"]

_NARROW = BYTES | {DType.INT16, DType.UINT16, DType.INT4, DType.UINT4}
_SCALES = frozenset({DType.FLOAT32, DType.FLOAT16})


class QuantizeLinear(MicrosoftOperator):
    """QuantizeLinear under ONNX Runtime's name, from when the standard had fewer types. Without a zero point: uint8."""

    inputs = ("x: T1", "y_scale: T1", "y_zero_point?: T2")
    outputs = ("y: T2",)
    types = {"T1": _SCALES, "T2": _NARROW}
    axis: int = 1

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> TensorType:
        """As the standard's."""
        return StandardQuantizeLinear(axis=_axis(self.axis, x, scale)).infer(x, scale, zero)

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str = "") -> str:
        """The standard's."""
        op = StandardQuantizeLinear(axis=_axis(self.axis, g.given(x), g.given(scale)))
        return node(g, op, x, scale, *([zero] if zero else []))


class DequantizeLinear(MicrosoftOperator):
    """DequantizeLinear under ONNX Runtime's name, from when the standard had fewer types."""

    inputs = ("x: T1", "x_scale: T2", "x_zero_point?: T1")
    outputs = ("y: T2",)
    types = {"T1": _NARROW | {DType.INT32}, "T2": _SCALES}
    axis: int = 1

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> TensorType:
        """As the standard's."""
        return StandardDequantizeLinear(axis=_axis(self.axis, x, scale)).infer(x, scale, zero)

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str = "") -> str:
        """The standard's."""
        op = StandardDequantizeLinear(axis=_axis(self.axis, g.given(x), g.given(scale)))
        return node(g, op, x, scale, *([zero] if zero else []))


def _axis(axis: int, x: TensorType, scale: TensorType) -> int:
    """An axis that is there, where one scale for all leaves none to count."""
    return axis if scale.rank or -x.rank <= axis < x.rank else 0


class QLinearAdd(MicrosoftOperator):
    """A + B of bytes that stand for (q - zero point) * scale; rounded half to even and saturated."""

    inputs = (
        "A: T",
        "A_scale: float32",
        "A_zero_point?: T",
        "B: T",
        "B_scale: float32",
        "B_zero_point?: T",
        "C_scale: float32",
        "C_zero_point?: T",
    )
    outputs = ("C: T",)
    types = {"T": BYTES}

    def infer(self, A: TensorType, *rest: TensorType | None) -> TensorType:
        """The shape that A and B broadcast to."""
        other = rest[2]
        assert other is not None
        check_scalars(rest[0], rest[1], rest[3], rest[4], *rest[5:])
        return Add().infer(A, other)

    def compose(self, g: GraphBuilder, a: str, a_scale: str, a_zero: str, b: str, b_scale: str, b_zero: str, *c: str) -> str:
        """Floats, the operation, bytes."""
        y = node(g, Add(), weights(g, a, a_scale, a_zero), weights(g, b, b_scale, b_zero))
        return stored(g, y, g.given(a).dtype, *c)


class QLinearMul(QLinearAdd):
    """A * B of bytes that stand for (q - zero point) * scale; rounded half to even and saturated."""

    op_type = "QLinearMul"

    def compose(self, g: GraphBuilder, a: str, a_scale: str, a_zero: str, b: str, b_scale: str, b_zero: str, *c: str) -> str:
        """Floats, the operation, bytes."""
        y = node(g, Mul(), weights(g, a, a_scale, a_zero), weights(g, b, b_scale, b_zero))
        return stored(g, y, g.given(a).dtype, *c)
