"""Pooling of quantized bytes, and of bytes with the channels last."""

from typing import Any

from dovetail.op import GraphBuilder, ShapeError, TensorType
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnxruntime_contrib._base import BYTES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node
from dovetail_ops_onnxruntime_contrib._stored import check_scalars, floats, stored, to_first, to_last

__all__ = ["NhwcMaxPool", "QLinearAveragePool", "QLinearGlobalAveragePool"]


class QLinearAveragePool(MicrosoftOperator):
    """AveragePool of bytes; with `channels_last` of [N, D1, ..., C]."""

    inputs = ("X: T", "x_scale: float32", "x_zero_point?: T", "y_scale: float32", "y_zero_point?: T")
    outputs = ("Y: T",)
    types = {"T": BYTES}
    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    channels_last: bool = False
    count_include_pad: bool = False
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, X: TensorType, *rest: TensorType | None) -> TensorType:
        """The pooled shape, in the order of the axes of X."""
        check_scalars(*rest)
        return _inferred(X, self.channels_last, AveragePool.like(self))

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str, *y: str) -> str:
        """Floats, AveragePool, bytes."""
        return _pooled(g, x, scale, zero, y, self.channels_last, AveragePool.like(self))


class QLinearGlobalAveragePool(MicrosoftOperator):
    """GlobalAveragePool of bytes; with `channels_last` of [N, D1, ..., C]."""

    inputs = ("X: T", "x_scale: float32", "x_zero_point: T", "y_scale: float32", "y_zero_point: T")
    outputs = ("Y: T",)
    types = {"T": BYTES}
    channels_last: bool = False

    def infer(self, X: TensorType, *rest: TensorType | None) -> TensorType:
        """One element a channel, in the order of the axes of X."""
        check_scalars(*rest)
        return _inferred(X, self.channels_last, GlobalAveragePool())

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str, *y: str) -> str:
        """Floats, GlobalAveragePool, bytes."""
        return _pooled(g, x, scale, zero, y, self.channels_last, GlobalAveragePool())


class NhwcMaxPool(MicrosoftOperator):
    """MaxPool of bytes [N, D1, ..., C]."""

    inputs = ("x: T",)
    outputs = ("y: T",)
    types = {"T": BYTES}
    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, x: TensorType) -> TensorType:
        """The pooled shape, channels last."""
        return _inferred(x, True, MaxPool.like(self))

    def compose(self, g: GraphBuilder, x: str) -> str:
        """MaxPool between transposes."""
        rank = g.given(x).rank
        return to_last(g, node(g, MaxPool.like(self), to_first(g, x, rank)), rank)


def _inferred(X: TensorType, channels_last: bool, pool: Any) -> TensorType:
    if X.rank < 3:
        raise ShapeError(f"input 'X' is {X}; accepted: rank 3 or more")
    shown = X.with_shape((X.dims[0], X.dims[-1], *X.dims[1:-1])) if channels_last else X
    found = pool.infer(shown)
    dims = (found[0] if isinstance(found, tuple) else found).dims
    return X.with_shape((dims[0], *dims[2:], dims[1]) if channels_last else dims)


def _pooled(g: GraphBuilder, x: str, scale: str, zero: str, out: tuple[str, ...], channels_last: bool, pool: Any) -> str:
    t = g.given(x)
    first = to_first(g, x, t.rank) if channels_last else x
    y = stored(g, node(g, pool, floats(g, first, scale, zero)), t.dtype, *out)
    return to_last(g, y, t.rank) if channels_last else y
