"""Layers with a state of one size, against onnxruntime: odd sizes, left out inputs, other types, and token by token."""

from typing import Any

import numpy as np
import pytest

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib.linear_attention import (
    CausalConvWithState,
    GatedRMSNorm,
    LinearAttention,
    LinearAttentionGate,
)


def _floats(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize(("length", "taps"), [(1, 4), (5, 3), (2, 4), (7, 2)])
@pytest.mark.parametrize(("past", "bias", "activation"), [(True, True, "silu"), (False, False, "none"), (True, False, "swish")])
def test_convolutions(
    agree: Any, rng: np.random.Generator, device: str, length: int, taps: int, past: bool, bias: bool, activation: str
) -> None:
    arrays = [
        _floats(rng, 2, 5, length),
        _floats(rng, 5, 1, taps),
        _floats(rng, 5) if bias else None,
        _floats(rng, 2, 5, taps - 1) if past else None,
    ]
    agree("CausalConvWithState", arrays, 2, constants=[1, 2] if bias else [1], device=device, activation=activation)


@pytest.mark.parametrize("dilation", [2, 3])
def test_convolutions_with_a_dilation(agree: Any, rng: np.random.Generator, dilation: int) -> None:
    arrays = [_floats(rng, 2, 3, 4), _floats(rng, 3, 1, 3), None, _floats(rng, 2, 3, 2 * dilation)]
    agree("CausalConvWithState", arrays, 2, constants=[1], dilation=dilation)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("q_heads", "kv", "k_heads"), [(2, 2, 2), (4, 2, 2), (2, 4, 2), (2, 4, 4)])
@pytest.mark.parametrize(
    ("tokens", "past", "elements", "scale"), [(1, True, False, 1.0), (6, False, True, 0.0), (3, True, True, 0.3)]
)
def test_linear_attention(
    agree: Any,
    rng: np.random.Generator,
    rule: str,
    q_heads: int,
    kv: int,
    k_heads: int,
    tokens: int,
    past: bool,
    elements: bool,
    scale: float,
) -> None:
    size, width = 8, 6
    k = _floats(rng, 2, tokens, k_heads, size)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    arrays = [
        _floats(rng, 2, tokens, q_heads * size),
        k.reshape(2, tokens, -1),
        _floats(rng, 2, tokens, kv * width),
        _floats(rng, 2, kv, size, width) if past else None,
        -np.abs(_floats(rng, 2, tokens, kv * (size if elements else 1))) if "gated" in rule else None,
        rng.uniform(0, 1, (2, tokens, 1 if elements else kv)).astype(np.float32) if "delta" in rule else None,
    ]
    agree("LinearAttention", arrays, 2, q_num_heads=q_heads, kv_num_heads=kv, update_rule=rule, scale=scale)


def test_tokens_one_by_one_are_as_all_at_once(rng: np.random.Generator) -> None:
    op = LinearAttention(q_num_heads=2, kv_num_heads=4)
    q, k, v = _floats(rng, 2, 5, 6), _floats(rng, 2, 5, 6) / 3, _floats(rng, 2, 5, 8)
    decay, beta = -np.abs(_floats(rng, 2, 5, 4)), rng.uniform(0, 1, (2, 5, 4)).astype(np.float32)
    every, last = op.reference(q, k, v, None, decay, beta)
    state = None
    for t in range(5):
        y, state = op.reference(*(x[:, t : t + 1] for x in (q, k, v)), state, decay[:, t : t + 1], beta[:, t : t + 1])
        np.testing.assert_allclose(y[:, 0], every[:, t], rtol=1e-5, atol=1e-6)
    assert state is not None
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("outputs", [1, 2])
def test_gates(agree: Any, rng: np.random.Generator, dtype: Any, outputs: int) -> None:
    arrays = [_floats(rng, 2, 3, 5, dtype=dtype) * 9, _floats(rng, 5), _floats(rng, 5), _floats(rng, 2, 3, 5, dtype=dtype)]
    tolerance = 1e-5 if dtype == np.float32 else 4e-3
    agree("LinearAttentionGate", arrays if outputs == 2 else arrays[:3], outputs, tolerance=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("groups", "activation"), [(1, "silu"), (3, "sigmoid"), (2, "swish")])
def test_gated_norms(agree: Any, rng: np.random.Generator, dtype: Any, groups: int, activation: str) -> None:
    arrays = [
        _floats(rng, 2, 3, groups * 5, dtype=dtype),
        _floats(rng, 5, dtype=dtype),
        _floats(rng, 2, 3, groups * 5, dtype=dtype),
    ]
    agree("GatedRMSNorm", arrays, tolerance=1e-5 if dtype == np.float32 else 1e-2, activation=activation)


@pytest.mark.parametrize(("layout", "section"), [(0, (2, 3, 3)), (1, (4, 2, 2)), (0, (8, 0, 0)), (1, (3, 3, 2))])
@pytest.mark.parametrize(("rank", "turned"), [(3, 0), (4, 0), (3, 16)])
def test_three_positions(agree: Any, rng: np.random.Generator, layout: int, section: Any, rank: int, turned: int) -> None:
    size = 24 if turned else 16
    x = _floats(rng, 2, 3, 5, size) if rank == 4 else _floats(rng, 2, 5, 3 * size)
    arrays = [x, rng.integers(0, 9, (3, 2, 5)), _floats(rng, 9, 8), _floats(rng, 9, 8)]
    heads = {"num_heads": 3, "rotary_embedding_dim": turned} if rank == 3 else {}
    agree("MRotaryEmbedding", arrays, mrope_section=section, mrope_layout=layout, **heads)


def test_refusals() -> None:
    x = TensorType.of(np.zeros((1, 2, 6), np.float32))
    with pytest.raises(OperatorError, match="accepted: ndim 1"):
        CausalConvWithState(state_window=2)
    with pytest.raises(OperatorError, match="'activation' is 'relu'"):
        CausalConvWithState(activation="relu")
    with pytest.raises(OperatorError, match="'update_rule' is 'other'"):
        LinearAttention(q_num_heads=1, kv_num_heads=1, update_rule="other")
    with pytest.raises(OperatorError, match="q_num_heads 3, kv_num_heads 2"):
        LinearAttention(q_num_heads=3, kv_num_heads=2)
    with pytest.raises(ShapeError, match="'decay' is None"):
        LinearAttention(q_num_heads=2, kv_num_heads=2).infer(x, x, x)
    with pytest.raises(ShapeError, match="'key' is"):
        LinearAttention(q_num_heads=2, kv_num_heads=2, update_rule="linear").infer(x, x.with_shape((1, 2, 5)), x)
    with pytest.raises(ShapeError, match="a multiple of C"):
        GatedRMSNorm().infer(x, x.with_shape((4,)), x)
    with pytest.raises(ShapeError, match=r"accepted: \[.., H\]"):
        LinearAttentionGate().infer(x, x.with_shape((4,)), x.with_shape((4,)))
    with pytest.raises(ShapeError, match="'past_state' is"):
        CausalConvWithState().infer(x, x.with_shape((2, 1, 3)), None, x.with_shape((1, 2, 3)))
