"""Parts of diffusion models as ONNX Runtime's optimizer fuses them for GPUs: convolutions, groups, sums, a gated GELU."""

from typing import Any

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.gelu import Gelu
from dovetail_ops_onnx.group_normalization import GroupNormalization
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.swish import Swish
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cast, cut, node, reshape, transpose

__all__ = ["BiasAdd", "BiasSplitGelu", "GroupNorm", "NhwcConv", "SkipGroupNorm"]

_TYPES = frozenset({DType.FLOAT32, DType.FLOAT16})
_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Axes that move channels before height and width, and behind them."""


class BiasAdd(MicrosoftOperator):
    """X + bias + skip, for a vector bias."""

    inputs = ("X: T", "bias: T", "skip: T")
    outputs = ("Y: T",)
    types = {"T": _TYPES}

    def infer(self, X: TensorType, bias: TensorType, skip: TensorType) -> TensorType:
        """The type of X."""
        if not X.rank or bias.dims != X.dims[-1:] or skip.dims != X.dims:
            raise ShapeError(
                f"input 'X' is {X}, 'bias' {bias}, 'skip' {skip}; accepted: a vector as long as the last axis, and X's"
            )
        return X.with_shape(X.dims)

    def compose(self, g: GraphBuilder, x: str, bias: str, skip: str) -> str:
        """Two sums."""
        return node(g, Add(), node(g, Add(), x, bias), skip)


class BiasSplitGelu(MicrosoftOperator):
    """The first half of X + bias along the last axis, times GELU of the second."""

    inputs = ("X: T", "bias: T")
    outputs = ("Y: T",)
    types = {"T": _TYPES}

    def infer(self, X: TensorType, bias: TensorType) -> TensorType:
        """X with half of the last axis."""
        if not X.rank or bias.dims != X.dims[-1:] or X.dims[-1] % 2:
            raise ShapeError(f"input 'X' is {X}, 'bias' {bias}; accepted: a vector as long as the last axis, which is even")
        return X.with_shape((*X.dims[:-1], X.dims[-1] // 2))

    def compose(self, g: GraphBuilder, x: str, bias: str) -> str:
        """A sum, two halves, Gelu and a product."""
        t = g.given(x)
        both, half = node(g, Add(), x, bias), t.dims[-1] // 2
        left, right = (cut(g, both, t.rank - 1, start, start + half) for start in (0, half))
        return node(g, Mul(), left, node(g, Gelu(), right))


class NhwcConv(MicrosoftOperator):
    """Conv of X [N, H, W, C] with W [M, kH, kW, C / group] and B [M]: [N, H', W', M]."""

    inputs = ("X: T", "W: T", "B?: T")
    outputs = ("Y: T",)
    types = {"T": _TYPES}
    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, X: TensorType, W: TensorType, B: TensorType | None = None) -> TensorType:
        """The convolved shape, channels last."""
        if X.rank != 4 or W.rank != 4:
            raise ShapeError(f"input 'X' is {X}, 'W' {W}; accepted: 4 axes each")
        x, w = (t.with_shape(tuple([t.dims[i] for i in _FIRST])) for t in (X, W))
        dims = Conv.like(self).infer(x, w, B).dims
        return X.with_shape(tuple([dims[i] for i in _LAST]))

    def compose(self, g: GraphBuilder, x: str, w: str, b: str = "") -> str:
        """Conv between transposes."""
        y = node(g, Conv.like(self), transpose(g, x, _FIRST), transpose(g, w, _FIRST), *([b] if b else []))
        return transpose(g, y, _LAST)


class _Grouped(MicrosoftOperator):
    """The attributes of both normalizations."""

    types = {"T": _TYPES, "M": _TYPES}
    activation: int
    groups: int
    channels_last: bool = True
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.activation not in (0, 1) or self.groups < 1:
            found = f"attributes 'activation' {self.activation}, 'groups' {self.groups}"
            raise OperatorError(f"{found}; accepted: 0 or 1, 1 or more")


class GroupNorm(_Grouped):
    """GroupNormalization of X [N, H, W, C], or [N, C, H, W] without `channels_last`, and SiLU where `activation` is 1.

    Computed in the wider of the types of X and gamma.
    """

    inputs = ("X: T", "gamma: M", "beta: M")
    outputs = ("Y: T",)

    def infer(self, X: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        """The type of X."""
        return _normalized(X, gamma, beta, self.groups, self.channels_last)

    def compose(self, g: GraphBuilder, x: str, gamma: str, beta: str) -> str:
        """GroupNormalization and Swish, with channels second."""
        return _normalize(g, x, gamma, beta, self, g.given(x).dtype)


class SkipGroupNorm(_Grouped):
    """GroupNorm of X + skip + bias, and that sum; skip has the shape of X, or one number for each channel of a sample."""

    inputs = ("X: T", "gamma: M", "beta: M", "skip: T", "bias?: T")
    outputs = ("Y: T", "S?: T")

    def infer(
        self, X: TensorType, gamma: TensorType, beta: TensorType, skip: TensorType, bias: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        """The type of X twice."""
        y = _normalized(X, gamma, beta, self.groups, self.channels_last)
        channels = gamma.dims[0]
        each = self._each(X.dims[0], channels)
        if skip.dims not in (X.dims, each, (X.dims[0], channels)) or (bias is not None and bias.dims != (channels,)):
            raise ShapeError(
                f"input 'skip' is {skip}, 'bias' {bias}; accepted: {X}, {list(each)} or {list(each[:1])} by channels"
            )
        return y, y

    def compose(self, g: GraphBuilder, x: str, gamma: str, beta: str, skip: str, bias: str = "") -> Any:
        """Sums and GroupNorm's nodes."""
        t, channels = g.given(x), g.given(gamma).dims[0]
        if g.given(skip).rank == 2:
            skip = reshape(g, skip, self._each(t.dims[0], channels))
        total = node(g, Add(), x, skip)
        if bias:
            total = node(g, Add(), total, reshape(g, bias, self._each(1, channels)))
        return _normalize(g, total, gamma, beta, self, t.dtype), total

    def _each(self, batch: int, channels: int) -> tuple[int, ...]:
        return (batch, 1, 1, channels) if self.channels_last else (batch, channels, 1, 1)


def _normalized(x: TensorType, gamma: TensorType, beta: TensorType, groups: int, last: bool) -> TensorType:
    channels = x.dims[3 if last else 1] if x.rank == 4 else 0
    if x.rank != 4 or channels % groups or gamma.dims != (channels,) or beta.dims != (channels,):
        raise ShapeError(
            f"input 'X' is {x}, 'gamma' {gamma}, 'beta' {beta}; accepted: 4 axes, vectors of channels in {groups} groups"
        )
    return x.with_shape(x.dims)


def _normalize(g: GraphBuilder, x: str, gamma: str, beta: str, op: _Grouped, narrow: DType) -> str:
    vector = g.given(gamma).dtype
    wide = narrow if narrow is vector else DType.FLOAT32
    gamma, beta = (cast(g, name, vector, wide) for name in (gamma, beta))
    y = cast(g, transpose(g, x, _FIRST) if op.channels_last else x, narrow, wide)
    y = node(g, GroupNormalization(num_groups=op.groups, epsilon=op.epsilon), y, gamma, beta)
    y = cast(g, node(g, Swish(), y) if op.activation else y, wide, narrow)
    return transpose(g, y, _LAST) if op.channels_last else y
