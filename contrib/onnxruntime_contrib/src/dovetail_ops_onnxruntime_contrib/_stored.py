"""Shared by the operators on stored bytes: to floats and back, scalars checked, channels moved."""

from dovetail.op import DType, GraphBuilder, ShapeError, TensorType
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.passes.fuse_quantized import HeldDequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnxruntime_contrib._nodes import ints, node, transpose

__all__ = ["check_row", "check_scalars", "floats", "stored", "to_first", "to_last", "weights"]


def floats(g: GraphBuilder, x: str, scale: str, zero: str = "") -> str:
    """The numbers that bytes of one scale stand for."""
    return node(g, DequantizeLinear(axis=0), x, scale, *([zero] if zero else []))


def weights(g: GraphBuilder, x: str, scale: str, zero: str = "", axis: int = 0) -> str:
    """The numbers that an input of the operator stands for, with one scale or one for each place along the axis.

    A constant with constant parameters stays bytes until it is known whether a device multiplies bytes.
    """
    held = all(g.given(name).value is not None for name in (x, scale, zero) if name)
    op = (HeldDequantizeLinear if held else DequantizeLinear)(axis=axis)
    if not zero or g.given(zero).size == g.given(scale).size:
        return node(g, op, x, scale, *([zero] if zero else []))
    columns = ints(g, [max(g.given(scale).size, g.given(zero).size)])
    return node(g, op, x, *(node(g, Expand(), name, columns) for name in (scale, zero)))


def stored(g: GraphBuilder, y: str, dtype: DType, scale: str, zero: str = "") -> str:
    """Floats as bytes of the zero point's type, of `dtype` without one."""
    return node(g, QuantizeLinear(axis=0), y, scale, zero or g.constant(0, dtype))


def to_first(g: GraphBuilder, x: str, rank: int) -> str:
    """[N, D1, ..., C] with the channels behind N."""
    return transpose(g, x, (0, rank - 1, *range(1, rank - 1)))


def to_last(g: GraphBuilder, x: str, rank: int) -> str:
    """[N, C, D1, ...] with the channels last."""
    return transpose(g, x, (0, *range(2, rank), 1))


def check_scalars(*types: TensorType | None) -> None:
    """Raise `ShapeError` for a scale or zero point of more than one element."""
    for t in types:
        if t is not None and t.dims not in ((), (1,)):
            raise ShapeError(f"a scale or zero point is {t}; accepted: a scalar")


def check_row(size: int, *types: TensorType | None) -> None:
    """Raise `ShapeError` for a scale or zero point that is neither a scalar nor one for each of `size` columns."""
    for t in types:
        if t is not None and t.dims not in ((), (1,), (size,)):
            raise ShapeError(f"a scale or zero point is {t}; accepted: a scalar or [{size}]")
