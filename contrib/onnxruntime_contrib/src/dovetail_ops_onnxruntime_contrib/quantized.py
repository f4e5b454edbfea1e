"""Operators on quantized bytes: taken apart into floats between DequantizeLinear and QuantizeLinear."""

from typing import Any

from dovetail.op import DType, GraphBuilder, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear as StandardDequantizeLinear
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear as StandardQuantizeLinear
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import given, node, transpose

__all__ = ["DequantizeLinear", "QLinearAdd", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearMul", "QuantizeLinear"]

_BYTES = frozenset({DType.UINT8, DType.INT8})
_NARROW = _BYTES | {DType.INT16, DType.UINT16, DType.INT4, DType.UINT4}
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
        op = StandardQuantizeLinear(axis=_axis(self.axis, given(g, x), given(g, scale)))
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
        op = StandardDequantizeLinear(axis=_axis(self.axis, given(g, x), given(g, scale)))
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
    types = {"T": _BYTES}

    def infer(self, A: TensorType, *rest: TensorType | None) -> TensorType:
        """The shape that A and B broadcast to."""
        other = rest[2]
        assert other is not None
        _check_scalars(rest[0], rest[1], rest[3], rest[4], *rest[5:])
        return Add().infer(A, other)

    def compose(self, g: GraphBuilder, a: str, a_scale: str, a_zero: str, b: str, b_scale: str, b_zero: str, *c: str) -> str:
        """Floats, the operation, bytes."""
        y = node(g, Add(), _floats(g, a, a_scale, a_zero), _floats(g, b, b_scale, b_zero))
        return _bytes(g, y, given(g, a).dtype, *c)


class QLinearMul(QLinearAdd):
    """A * B of bytes that stand for (q - zero point) * scale; rounded half to even and saturated."""

    op_type = "QLinearMul"

    def compose(self, g: GraphBuilder, a: str, a_scale: str, a_zero: str, b: str, b_scale: str, b_zero: str, *c: str) -> str:
        """Floats, the operation, bytes."""
        y = node(g, Mul(), _floats(g, a, a_scale, a_zero), _floats(g, b, b_scale, b_zero))
        return _bytes(g, y, given(g, a).dtype, *c)


class QLinearAveragePool(MicrosoftOperator):
    """AveragePool of bytes; with `channels_last` of [N, D1, ..., C]."""

    inputs = ("X: T", "x_scale: float32", "x_zero_point?: T", "y_scale: float32", "y_zero_point?: T")
    outputs = ("Y: T",)
    types = {"T": _BYTES}
    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    channels_last: bool = False
    count_include_pad: bool = False
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, X: TensorType, *rest: TensorType | None) -> TensorType:
        """The pooled shape, in the order of the axes of X."""
        _check_scalars(*rest)
        return _inferred(X, self.channels_last, self._pool())

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str, *y: str) -> str:
        """Floats, AveragePool, bytes."""
        return _pooled(g, x, scale, zero, y, self.channels_last, self._pool())

    def _pool(self) -> AveragePool:
        return AveragePool(
            kernel_shape=self.kernel_shape,
            auto_pad=self.auto_pad,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
            pads=self.pads,
            strides=self.strides,
        )


class QLinearGlobalAveragePool(MicrosoftOperator):
    """GlobalAveragePool of bytes; with `channels_last` of [N, D1, ..., C]."""

    inputs = ("X: T", "x_scale: float32", "x_zero_point: T", "y_scale: float32", "y_zero_point: T")
    outputs = ("Y: T",)
    types = {"T": _BYTES}
    channels_last: bool = False

    def infer(self, X: TensorType, *rest: TensorType | None) -> TensorType:
        """One element a channel, in the order of the axes of X."""
        _check_scalars(*rest)
        return _inferred(X, self.channels_last, GlobalAveragePool())

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str, *y: str) -> str:
        """Floats, GlobalAveragePool, bytes."""
        return _pooled(g, x, scale, zero, y, self.channels_last, GlobalAveragePool())


def _floats(g: GraphBuilder, x: str, scale: str, zero: str) -> str:
    return node(g, StandardDequantizeLinear(axis=0), x, scale, *([zero] if zero else []))


def _bytes(g: GraphBuilder, y: str, dtype: DType, scale: str, zero: str = "") -> str:
    return node(g, StandardQuantizeLinear(axis=0), y, scale, zero or g.constant(0, dtype))


def _first(rank: int) -> tuple[int, ...]:
    """[N, D1, ..., C] with the channels moved to the front."""
    return (0, rank - 1, *range(1, rank - 1))


def _inferred(X: TensorType, channels_last: bool, pool: Any) -> TensorType:
    if X.rank < 3:
        raise ShapeError(f"input 'X' is {X}; accepted: rank 3 or more")
    shown = X.with_shape(tuple(X.dims[i] for i in _first(X.rank))) if channels_last else X
    dims = pool.infer(shown).dims
    return X.with_shape((dims[0], *dims[2:], dims[1]) if channels_last else dims)


def _pooled(g: GraphBuilder, x: str, scale: str, zero: str, out: tuple[str, ...], channels_last: bool, pool: Any) -> str:
    t = given(g, x)
    y = _floats(g, x, scale, zero)
    y = node(g, pool, transpose(g, y, _first(t.rank)) if channels_last else y)
    y = transpose(g, y, (0, *range(2, t.rank), 1)) if channels_last else y
    return _bytes(g, y, t.dtype, *out)


def _check_scalars(*types: TensorType | None) -> None:
    for t in types:
        if t is not None and t.rank:
            raise ShapeError(f"a scale or zero point is {t}; accepted: a scalar")
