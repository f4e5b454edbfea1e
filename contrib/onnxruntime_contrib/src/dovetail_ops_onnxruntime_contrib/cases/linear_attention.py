"""Cases of layers with a state of one size: their formulas, number by number."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.linear_attention import (
    CausalConvWithState,
    GatedRMSNorm,
    LinearAttention,
    LinearAttentionGate,
)

Array = NDArray[Any]


def causal_conv_with_state(rng: np.random.Generator) -> Iterator[Case]:
    """With and without a past, a bias, an activation, a dilation, tokens; one tap."""
    for name, past, bias, activation, dilation, length, taps in (
        ("past", True, True, "silu", 1, 5, 4),
        ("no_past", False, False, "none", 1, 3, 3),
        ("dilated", True, False, "swish", 2, 1, 3),
        ("one_tap", True, False, "none", 1, 4, 1),
        ("batch_0", True, True, "silu", 1, 2, 3),
    ):
        batch, channels, before = 0 if name == "batch_0" else 2, 3, (taps - 1) * dilation
        x, weight, offset, state = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in ((batch, channels, length), (channels, 1, taps), (channels,), (batch, channels, before))
        )
        every = np.concatenate((state if past else np.zeros_like(state), x), 2).astype(np.float64)
        y = np.zeros(x.shape)
        for b, c, at in np.ndindex(*x.shape):
            y[b, c, at] = sum(weight[c, 0, j] * every[b, c, at + j * dilation] for j in range(taps)) + (offset[c] if bias else 0)
        y = y if activation == "none" else y / (1 + np.exp(-y))
        inputs = (x, weight, offset if bias else None, state if past else None)
        want = (y.astype(np.float32), every[:, :, length:].astype(np.float32))
        op = CausalConvWithState(activation=activation, dilation=dilation)
        yield Case(name, op, inputs, want, constants=(1, 2), rtol=1e-5, atol=1e-5)


def linear_attention(rng: np.random.Generator) -> Iterator[Case]:
    """Each rule, more heads of queries than of values and fewer, decay for heads and for elements, batch 0."""
    for name, rule, heads, decays, past in (
        ("linear", "linear", (2, 2, 2), 0, True),
        ("gated", "gated", (4, 2, 2), 1, True),
        ("gated_elements", "gated", (2, 2, 2), 5, False),
        ("delta", "delta", (2, 4, 2), 0, True),
        ("gated_delta", "gated_delta", (2, 4, 4), 1, True),
        ("gated_delta_elements", "gated_delta", (3, 3, 3), 5, True),
        ("batch_0", "gated_delta", (2, 2, 2), 1, True),
    ):
        (q_heads, kv, k_heads), batch, tokens, size, width = heads, 0 if name == "batch_0" else 2, 3, 5, 4
        q, k, v, state, decay, beta = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in (
                (batch, tokens, q_heads * size),
                (batch, tokens, k_heads * size),
                (batch, tokens, kv * width),
                (batch, kv, size, width),
                (batch, tokens, kv * max(1, decays)),
                (batch, tokens, kv),
            )
        )
        inputs = (q, k, v, state if past else None, -np.abs(decay) if decays else None, beta if "delta" in rule else None)
        op = LinearAttention(q_num_heads=q_heads, kv_num_heads=kv, update_rule=rule)
        yield Case(name, op, inputs, _attended(op, size, *inputs), rtol=1e-4, atol=1e-4)


def _attended(op: LinearAttention, size: int, *inputs: Array | None) -> tuple[Array, Array]:
    q, k, v, past, decay, beta = (None if x is None else x.astype(np.float64) for x in inputs)
    assert q is not None
    assert k is not None
    assert v is not None
    (batch, tokens, _), q_heads, kv, width = q.shape, op.q_num_heads, op.kv_num_heads, v.shape[2] // op.kv_num_heads
    most, k_heads = max(q_heads, kv), k.shape[2] // size
    y, state = np.zeros((batch, tokens, most * width)), np.zeros((batch, kv, size, width)) if past is None else past.copy()
    for b, t, head in np.ndindex(batch, tokens, kv):
        s, k_head = state[b, head], head * k_heads // kv
        one, other = k[b, t, k_head * size : (k_head + 1) * size], v[b, t, head * width : (head + 1) * width]
        if decay is not None:
            s *= np.exp(decay[b, t].reshape(kv, -1)[head])[:, None]
        if beta is not None:
            other = (other - s.T @ one) * beta[b, t, head]
        s += np.outer(one, other)
        for out in range(head * most // kv, (head + 1) * most // kv):
            asked = q[b, t].reshape(q_heads, size)[out * q_heads // most]
            y[b, t, out * width : (out + 1) * width] = asked @ s / math.sqrt(size)
    return y.astype(np.float32), state.astype(np.float32)


def linear_attention_gate(rng: np.random.Generator) -> Iterator[Case]:
    """Large and small numbers."""
    a, b = (rng.standard_normal((2, 3, 4)).astype(np.float32) * 9 for _ in range(2))
    bias, scale = (rng.standard_normal(4).astype(np.float32) for _ in range(2))
    total = a.astype(np.float64) + bias
    decay, beta = (
        (np.log1p(np.exp(total)) * scale).astype(np.float32),
        (1 / (1 + np.exp(-b.astype(np.float64)))).astype(np.float32),
    )
    yield Case("both", LinearAttentionGate(), (a, bias, scale, b), (decay, beta), rtol=1e-5, atol=1e-5)


def gated_rms_norm(rng: np.random.Generator) -> Iterator[Case]:
    """One group and several, both activations."""
    for name, groups, activation in (("one", 1, "silu"), ("several", 3, "sigmoid")):
        x, gate = (rng.standard_normal((2, 3, groups * 5)).astype(np.float32) for _ in range(2))
        scale = rng.standard_normal(5).astype(np.float32)
        parts, z = x.astype(np.float64).reshape(2, 3, groups, 5), gate.astype(np.float64)
        y = (parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-5) * scale).reshape(x.shape)
        opened = 1 / (1 + np.exp(-z))
        want = (y * (opened if activation == "sigmoid" else z * opened)).astype(np.float32)
        yield Case(name, GatedRMSNorm(activation=activation), (x, scale, gate), (want,), rtol=1e-5, atol=1e-5)
