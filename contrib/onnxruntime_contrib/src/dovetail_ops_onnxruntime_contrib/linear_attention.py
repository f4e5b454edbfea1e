"""Layers with a state of one size in place of caches, as Qwen3.5 and LFM2 have: linear attention, convolutions with a past."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.rms_normalization import RMSNormalization
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.swish import Swish
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cast, cut, node, reshape

__all__ = ["CausalConvWithState", "GatedRMSNorm", "LinearAttention", "LinearAttentionGate"]

Array = NDArray[Any]

_F32 = frozenset({DType.FLOAT32})


class CausalConvWithState(MicrosoftOperator):
    """Each channel of the input [batch, channels, length] convolved along its past, and an activation.

    Before the input come the last positions of earlier ones, `past_state` [batch, channels, (taps - 1) * dilation], or zeros;
    `present_state` are those for the next run. The weight is [channels, 1, taps].
    """

    inputs = ("input: T", "weight: T", "bias?: T", "past_state?: T")
    outputs = ("output: T", "present_state: T")
    types = {"T": FLOAT_TYPES}
    activation: str = "none"
    channels_last: bool = False
    dilation: int = 1
    input_channel_offset: int = 0
    input_channels: int = 0
    ndim: int = 1
    state_channels_last: int = -1
    state_length: int = 0
    state_update_capacity: int = 0
    state_window: int = 0

    def __post_init__(self) -> None:
        others = (
            self.input_channel_offset,
            self.input_channels,
            self.state_length,
            self.state_update_capacity,
            self.state_window,
        )
        if self.ndim != 1 or self.channels_last or self.state_channels_last == 1 or any(others) or self.dilation < 1:
            raise OperatorError(
                "attributes ask for several dimensions, channels last, windows of states or parts of channels; accepted: ndim 1, "
                "defaults, and any dilation"
            )
        if self.activation not in ("none", "silu", "swish"):
            raise OperatorError(f"attribute 'activation' is {self.activation!r}; accepted: 'none', 'silu', 'swish'")

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None, past: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        """The types of the input and of the state."""
        if x.rank != 3 or weight.rank != 3 or weight.dims[:2] != (x.dims[1], 1) or not weight.dims[2]:
            raise ShapeError(f"'input' is {x}, 'weight' {weight}; accepted: [batch, channels, length], [channels, 1, taps]")
        state = x.with_shape((*x.dims[:2], (weight.dims[2] - 1) * self.dilation))
        if (past is not None and past.dims != state.dims) or (bias is not None and bias.dims != x.dims[1:2]):
            raise ShapeError(f"'past_state' is {past}, 'bias' {bias}; accepted: {state}, [{x.dims[1]}]")
        return x.with_shape(x.dims), state

    def compose(self, g: GraphBuilder, x: str, weight: str, bias: str = "", past: str = "") -> Any:
        """Concat, Conv with a group for each channel, Swish; the end of what Concat gave."""
        t = g.given(x)
        state = (g.given(weight).dims[2] - 1) * self.dilation
        before = past or g.constant(np.zeros((*t.dims[:2], state), t.dtype.numpy))
        every = node(g, Concat(axis=2), before, x)
        conv = Conv(group=t.dims[1], dilations=(self.dilation,))
        y = node(g, conv, every, weight, *([bias] if bias else []))
        total = t.dims[2] + state
        return y if self.activation == "none" else node(g, Swish(), y), cut(g, every, 2, total - state, total)


class LinearAttention(MicrosoftOperator):
    """Attention without softmax: a state [batch, kv heads, key size, value size] that each token updates, and its query reads.

    Query, key and value are [batch, tokens, heads * size]. Each of the fewer heads serves as many of the others. `update_rule`
    says what a token does: `gated` ones multiply the state by exp(decay) first; then key and value, times beta in `delta` ones
    and less what the state has for the key, are added as an outer product. `decay` is [batch, tokens, kv heads], or with a
    number for each element of the key, `beta` [batch, tokens, kv heads or 1]. All is computed in float32.
    """

    inputs = ("query: T", "key: T", "value: T", "past_state?: S", "decay?: T", "beta?: T")
    outputs = ("output: T", "present_state: S")
    types = {"T": FLOAT_TYPES, "S": FLOAT_TYPES}
    kv_num_heads: int
    q_num_heads: int
    chunk_size: int = 64
    scale: float = 0.0
    state_window: int = 0
    update_rule: str = "gated_delta"

    def __post_init__(self) -> None:
        if self.update_rule not in ("linear", "gated", "delta", "gated_delta"):
            raise OperatorError(f"attribute 'update_rule' is {self.update_rule!r}; accepted: linear, gated, delta, gated_delta")
        q, kv = self.q_num_heads, self.kv_num_heads
        if q < 1 or kv < 1 or (q % kv and kv % q) or self.state_window:
            found = f"q_num_heads {q}, kv_num_heads {kv}, state_window {self.state_window}"
            raise OperatorError(f"attributes {found}; accepted: one a multiple of the other, no window")

    def infer(
        self, query: TensorType, key: TensorType, value: TensorType, *rest: TensorType | None
    ) -> tuple[TensorType, TensorType]:
        """The output [batch, tokens, heads * value size], and the state."""
        past, decay, beta = (*rest, None, None, None)[:3]
        q, kv = self.q_num_heads, self.kv_num_heads
        if (
            any(t.rank != 3 or t.dims[:2] != query.dims[:2] for t in (query, key, value))
            or query.dims[2] % q
            or value.dims[2] % kv
        ):
            raise ShapeError(f"'query' is {query}, 'key' {key}, 'value' {value}; accepted: [batch, tokens, heads * size] each")
        size, width = query.dims[2] // q, value.dims[2] // kv
        if not size or key.dims[2] % size or not key.dims[2] or kv % (key.dims[2] // size):
            raise ShapeError(f"'key' is {key}; accepted: [batch, tokens, heads * {size}] of which {kv} heads are a multiple")
        state = query.with_shape((query.dims[0], kv, size, width)).with_dtype(query.dtype if past is None else past.dtype)
        if past is not None and past.dims != state.dims:
            raise ShapeError(f"'past_state' is {past}; accepted: {list(state.dims)}")
        lead = query.dims[:2]
        for name, wanted, t, sizes in (
            ("decay", "gated" in self.update_rule, decay, ((*lead, kv), (*lead, kv * size))),
            ("beta", "delta" in self.update_rule, beta, ((*lead, kv), (*lead, 1))),
        ):
            if wanted and (t is None or t.dims not in sizes):
                raise ShapeError(f"{name!r} is {t}; accepted for {self.update_rule!r}: {' or '.join(map(str, map(list, sizes)))}")
        return query.with_shape((*lead, max(q, kv) * width)), state

    def reference(self, query: Array, key: Array, value: Array, *rest: Array | None) -> tuple[Array, Array]:
        """Token by token, all heads at once."""
        past, decay, beta = (*rest, None, None, None)[:3]
        batch, tokens, _ = query.shape
        q_heads, kv = self.q_num_heads, self.kv_num_heads
        size, width = query.shape[2] // q_heads, value.shape[2] // kv
        q = query.reshape(batch, tokens, q_heads, size).astype(np.float32)
        q = q * np.float32(self.scale or 1 / math.sqrt(size))
        k = key.reshape(batch, tokens, key.shape[2] // size, size).astype(np.float32)
        k = np.repeat(k, kv // k.shape[2], 2)
        v = value.reshape(batch, tokens, kv, width).astype(np.float32)
        state = np.zeros((batch, kv, size, width), np.float32) if past is None else past.astype(np.float32)
        factors = np.exp(decay.astype(np.float32)) if decay is not None and "gated" in self.update_rule else None
        rates = beta.astype(np.float32) if beta is not None and "delta" in self.update_rule else None
        y = np.empty((batch, tokens, max(q_heads, kv), width), np.float32)
        for t in range(tokens):
            if factors is not None:
                state = state * factors[:, t].reshape(batch, kv, factors.shape[2] // kv, 1)
            added = v[:, t]
            if rates is not None:
                added = (added - (k[:, t, :, None] @ state)[:, :, 0]) * rates[:, t, :, None]
            state = state + k[:, t, :, :, None] * added[:, :, None]
            # [batch, kv heads, queries of one head, size]
            asked = (
                q[:, t].reshape(batch, kv, q_heads // kv, size)
                if q_heads >= kv
                else np.repeat(q[:, t], kv // q_heads, 1)[:, :, None]
            )
            y[:, t] = (asked @ state).reshape(batch, max(q_heads, kv), width)
        kind = query.dtype if past is None else past.dtype
        return y.reshape(batch, tokens, max(q_heads, kv) * width).astype(query.dtype), state.astype(kind)


class LinearAttentionGate(MicrosoftOperator):
    """decay_scale * softplus(a + dt_bias), and the sigmoid of b, for LinearAttention. The first in float32, rounded once."""

    inputs = ("a: T", "dt_bias: TF", "decay_scale: TF", "b?: T")
    outputs = ("decay: T", "beta?: T")
    types = {"T": FLOAT_TYPES, "TF": _F32}

    def infer(self, a: TensorType, bias: TensorType, scale: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        """The type of a, twice."""
        if not a.rank or bias.dims != a.dims[-1:] or scale.dims != bias.dims or (b is not None and b.dims != a.dims):
            raise ShapeError(f"'a' is {a}, 'dt_bias' {bias}, 'decay_scale' {scale}, 'b' {b}; accepted: [.., H], [H], [H], as 'a'")
        return a.with_shape(a.dims), a.with_shape(a.dims)

    def compose(self, g: GraphBuilder, a: str, bias: str, scale: str, b: str = "") -> Any:
        """Add, Softplus, Mul; Sigmoid."""
        kind = g.given(a).dtype
        total = node(g, Softplus(), node(g, Add(), cast(g, a, kind, DType.FLOAT32), bias))
        decay = cast(g, node(g, Mul(), total, scale), DType.FLOAT32, kind)
        return decay, node(g, Sigmoid(), b or a)


class GatedRMSNorm(MicrosoftOperator):
    """X / rms(X) * scale over each group of as many elements as `scale` has, times SiLU or the sigmoid of `gate`; in float32."""

    inputs = ("X: T", "scale: T", "gate: T")
    outputs = ("Y: T",)
    types = {"T": FLOAT_TYPES}
    activation: str = "silu"
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.activation not in ("silu", "swish", "sigmoid"):
            raise OperatorError(f"attribute 'activation' is {self.activation!r}; accepted: 'silu', 'swish', 'sigmoid'")

    def infer(self, x: TensorType, scale: TensorType, gate: TensorType) -> TensorType:
        """The type of X."""
        if not x.rank or scale.rank != 1 or not scale.size or x.dims[-1] % scale.size or gate.dims != x.dims:
            raise ShapeError(f"'X' is {x}, 'scale' {scale}, 'gate' {gate}; accepted: [.., a multiple of C], [C], as 'X'")
        return x.with_shape(x.dims)

    def compose(self, g: GraphBuilder, x: str, scale: str, gate: str) -> str:
        """RMSNormalization of the groups, Swish or Sigmoid, Mul."""
        t, size = g.given(x), g.given(scale).size
        wide, factor, opening = (cast(g, name, t.dtype, DType.FLOAT32) for name in (x, scale, gate))
        groups = reshape(g, wide, (*t.dims[:-1], t.dims[-1] // size, size))
        y = reshape(g, node(g, RMSNormalization(epsilon=self.epsilon), groups, factor), t.dims)
        opened = node(g, Sigmoid() if self.activation == "sigmoid" else Swish(), opening)
        return cast(g, node(g, Mul(), y, opened), DType.FLOAT32, t.dtype)
