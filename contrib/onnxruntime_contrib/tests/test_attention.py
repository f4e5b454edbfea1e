"""The attention operators against onnxruntime: caches, masks, biases, heads that share keys, positions."""

from typing import Any

import numpy as np
import pytest

from dovetail import Core, GraphBuilder
from dovetail.errors import OperatorError, ShapeError
from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnxruntime_contrib.attention import Attention, MultiHeadAttention
from dovetail_ops_onnxruntime_contrib.group_query_attention import GroupQueryAttention


def _floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


MASKS: dict[str, Any] = {
    "none": None,
    "lengths": np.array([5, 3], np.int32),
    "lengths and starts": np.array([5, 3, 1, 2], np.int32),
    "lengths and offsets": np.array([5, 3, 0, 5, 10, 0, 5, 8], np.int32),
    "keys": np.array([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0]], np.int32),
    "queries": np.tril(np.ones((2, 5, 5), np.int32)),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(agree: Any, rng: np.random.Generator, mask: str, causal: int) -> None:
    arrays = [_floats(rng, 2, 5, 8), _floats(rng, 8, 36), _floats(rng, 36), MASKS[mask]]
    agree("Attention", arrays, constants=(1, 2), num_heads=3, unidirectional=causal)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("value", [-3.4028234663852886e38, float("-inf")])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_the_least_value_for_what_is_left_out(
    agree: Any, rng: np.random.Generator, dtype: Any, value: float, device: str
) -> None:
    near = {"tolerance": 2e-2 if dtype == np.float16 else 1e-4, "device": device}
    arrays = [_floats(rng, 2, 5, 8), _floats(rng, 8, 36), _floats(rng, 36)]
    arrays = [*(x.astype(dtype) for x in arrays), MASKS["keys"]]
    agree("Attention", arrays, constants=(1, 2), num_heads=3, mask_filter_value=value, **near)
    sides = [_floats(rng, 2, length, 6).astype(dtype) for length in (3, 5, 5)]
    agree("MultiHeadAttention", [*sides, None, MASKS["lengths"]], num_heads=2, mask_filter_value=value, **near)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_attention_in_float16_computes_in_float32(rng: np.random.Generator, device: str) -> None:
    g = GraphBuilder()
    weights, bias = (g.constant(_floats(rng, *shape).astype(np.float16)) for shape in ((8, 36), (36,)))
    y = g.node(Attention(num_heads=3), g.input("x", "float16", [2, 5, 8]), weights, bias)
    model = Core().compile_model(g.model([y]), device)
    model({"x": _floats(rng, 2, 5, 8).astype(np.float16)})
    kernels = {node.op: node.kernel for node in model.report().nodes}
    assert kernels["MatMul"] != "ref"
    assert kernels["Attention"] != "ref"


def test_attention_with_other_sizes_of_v_and_a_scale(agree: Any, rng: np.random.Generator) -> None:
    arrays = [_floats(rng, 2, 5, 8), _floats(rng, 8, 30), _floats(rng, 30)]
    agree("Attention", arrays, constants=(1, 2), num_heads=2, qkv_hidden_sizes=[8, 8, 14], scale=0.3)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_a_past(agree: Any, rng: np.random.Generator, causal: int) -> None:
    arrays = [_floats(rng, 2, 5, 8), _floats(rng, 8, 18), _floats(rng, 18), None, _floats(rng, 2, 2, 3, 4, 2)]
    agree("Attention", arrays, outputs=2, constants=(1, 2), num_heads=3, unidirectional=causal)


@pytest.mark.parametrize("mask", ["none", "lengths", "keys"])
@pytest.mark.parametrize("before", [0, 4])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_attention_of_one_token_with_a_past(agree: Any, rng: np.random.Generator, mask: str, before: int, device: str) -> None:
    given = MASKS[mask] if mask != "keys" else MASKS[mask][:, -1 - before :]
    arrays = [_floats(rng, 2, 1, 8), _floats(rng, 8, 18), _floats(rng, 18), given, _floats(rng, 2, 2, 3, before, 2)]
    agree("Attention", arrays, outputs=2, constants=(1, 2), num_heads=3, unidirectional=1, scale=0.3, device=device)


@pytest.mark.parametrize("mask", ["none", "lengths", "lengths and offsets", "keys"])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention(agree: Any, rng: np.random.Generator, mask: str, bias: bool) -> None:
    arrays = [
        _floats(rng, 2, 3, 6),
        _floats(rng, 2, 5, 6),
        _floats(rng, 2, 5, 8),
        _floats(rng, 20) if bias else None,
        MASKS[mask],
    ]
    agree("MultiHeadAttention", arrays, num_heads=2)


def test_multi_head_attention_takes_no_starts() -> None:
    """As in its specification: only Attention has masks of [2 batch]."""
    x, mask = TensorType(DType.FLOAT32, (2, 5, 6)), TensorType(DType.INT32, (4,))
    with pytest.raises(ShapeError, match=r"accepted: \[2\], \[8\], \[2, 5\], \[2, 5, 5\]"):
        MultiHeadAttention(num_heads=2).infer(x, x, x, None, mask)


def test_multi_head_attention_takes_keys_by_heads(agree: Any, rng: np.random.Generator) -> None:
    agree("MultiHeadAttention", [_floats(rng, 2, 4, 12), *(_floats(rng, 2, 3, 5, 4) for _ in range(2))], num_heads=3)


def test_multi_head_attention_takes_packed_inputs(rng: np.random.Generator) -> None:
    # onnxruntime has these on GPUs only: the same numbers apart must give the same.
    q, k, v = (_floats(rng, 2, 5, 3, 4) for _ in range(3))
    op = MultiHeadAttention(num_heads=3)
    want = op.reference(*(x.reshape(2, 5, 12) for x in (q, k, v)))[0]
    np.testing.assert_allclose(op.reference(np.stack((q, k, v), 3))[0], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(op.reference(q.reshape(2, 5, 12), np.stack((k, v), 3))[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", ["none", "keys"])
@pytest.mark.parametrize(("queries", "before"), [(1, 0), (1, 2), (3, 0), (3, 2), (7, 0)])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_causal_attention_to_another_number_of_keys(
    agree: Any, rng: np.random.Generator, queries: int, before: int, mask: str, device: str
) -> None:
    sides = [_floats(rng, 2, length, 8) for length in (queries, 5 - before, 5 - before)]
    past = [_floats(rng, 2, 2, before, 4) for _ in range(2)] if before else []
    arrays = [*sides, None, MASKS[mask], None, *past]
    agree("MultiHeadAttention", arrays, outputs=3, num_heads=2, unidirectional=1, device=device)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_a_past(agree: Any, rng: np.random.Generator, causal: int) -> None:
    sides = [_floats(rng, 2, 3, 8) for _ in range(3)]
    past = [_floats(rng, 2, 2, 4, 4) for _ in range(2)]
    added = None if causal else _floats(rng, 1, 2, 3, 7)
    arrays = [*sides, None, None, added, *past]
    agree("MultiHeadAttention", arrays, outputs=3, num_heads=2, unidirectional=causal, scale=0.4)


@pytest.mark.parametrize("before", [0, 4])
def test_the_reference_of_one_token_composes_nothing(
    rng: np.random.Generator, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = (_floats(rng, 2, 1, 8) for _ in range(3))
    added, past = _floats(rng, 2, 2, 1, before + 1), [_floats(rng, 2, 2, before, 4) for _ in range(2)]
    op = MultiHeadAttention(num_heads=2, unidirectional=True)
    monkeypatch.setattr(MultiHeadAttention, "compose", None)
    y, keys, values, *_ = op.reference(q, k, v, None, None, added, *past)
    wide = [np.concatenate([old, new.reshape(2, 2, 1, 4)], axis=2) for old, new in zip(past, (k, v), strict=True)]
    np.testing.assert_array_equal(keys, wide[0])
    np.testing.assert_array_equal(values, wide[1])
    weights = np.exp(np.einsum("bhd,bhld->bhl", q.reshape(2, 2, 4).astype(np.float64), wide[0]) / 2 + added[:, :, 0])
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(y, np.einsum("bhl,bhld->bhd", weights, wide[1]).reshape(2, 1, 8), rtol=1e-5, atol=1e-6)


def _caches(rng: np.random.Generator, length: int) -> list[Any]:
    return [_floats(rng, 2, 2, length, 16) for _ in range(2)]


def _rotation(rng: np.random.Generator) -> list[Any]:
    angles = rng.uniform(-3, 3, (16, 8)).astype(np.float32)
    return [np.cos(angles), np.sin(angles)]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("more", [{}, {"local_window_size": 2}, {"softcap": 1.5}, {"scale": 0.2}], ids=str)
def test_group_query_attention_of_a_prompt(agree: Any, rng: np.random.Generator, packed: bool, rotary: int, more: Any) -> None:
    sides = (
        [_floats(rng, 2, 5, 8 * 16), None, None]
        if packed
        else [_floats(rng, 2, 5, 64), *(_floats(rng, 2, 5, 32) for _ in range(2))]
    )
    arrays = [*sides, None, None, np.array([4, 4], np.int32), np.array([5], np.int32), *(_rotation(rng) if rotary else [])]
    agree("GroupQueryAttention", arrays, outputs=3, num_heads=4, kv_num_heads=2, do_rotary=rotary, **more)


@pytest.mark.parametrize("constants", [(), (6,)], ids=["total_is_an_input", "total_is_a_constant"])
@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention_of_a_token(agree: Any, rng: np.random.Generator, rotary: int, constants: Any) -> None:
    sides = [_floats(rng, 2, 1, 64), *(_floats(rng, 2, 1, 32) for _ in range(2))]
    end = [np.array([6, 6], np.int32), np.array([7], np.int32), *(_rotation(rng) if rotary else [])]
    arrays = [*sides, *_caches(rng, 6), *end]
    how = {"outputs": 3, "constants": constants, "num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary}
    agree("GroupQueryAttention", arrays, rotary_interleaved=rotary, **how)


@pytest.mark.parametrize("how", ["smooth", "sink", "both", "neither"])
@pytest.mark.parametrize("length", [0, 6])
def test_group_query_attention_with_a_score_for_no_key(agree: Any, rng: np.random.Generator, how: str, length: int) -> None:
    count = 1 if length else 5
    sides = [_floats(rng, 2, count, 64), *(_floats(rng, 2, count, 32) for _ in range(2))]
    total = length + count
    arrays = [*sides, *_caches(rng, length), np.full(2, total - 1, np.int32), np.array([total], np.int32), *[None] * 4]
    arrays += [_floats(rng, 4) * 3] if how in ("sink", "both") else [None]
    # -1 is onnxruntime's default, which files may spell out.
    numbers = {"smooth": 1, "sink": 0, "both": 1, "neither": -1}
    attributes = {"smooth_softmax": numbers[how], "num_heads": 4, "kv_num_heads": 2, "local_window_size": 3}
    if how == "sink":
        del attributes["local_window_size"]
    agree("GroupQueryAttention", arrays, outputs=3, **attributes)


@pytest.mark.parametrize(("count", "before"), [(1, 9), (7, 0), (1, 4), (6, 5), (11, 0)])
@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention_with_caches_of_a_window(agree: Any, rng: Any, count: int, before: int, rotary: int) -> None:
    # Where all rows of the caches are in use: what onnxruntime leaves behind them is not specified.
    sides = [_floats(rng, 1, count, 64), *(_floats(rng, 1, count, 32) for _ in range(2))]
    past = [x[:1] for x in _caches(rng, 5)]
    end = [np.array([before + count - 1], np.int32), np.array([before + count], np.int32), *(_rotation(rng) if rotary else [])]
    heads = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary, "local_window_size": 5, "sliding_window_cache": 1}
    agree("GroupQueryAttention", [*sides, *past, *end], outputs=3, **heads)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("reference", [GroupQueryAttention.reference, Operator.reference], ids=["reference", "composition"])
def test_norms_of_queries_and_keys(rng: np.random.Generator, packed: bool, reference: Any) -> None:
    """onnxruntime has them on GPUs only: against heads that are normalized before."""
    q, k, v = _floats(rng, 2, 5, 64), *(_floats(rng, 2, 5, 32) for _ in range(2))
    weights = [rng.uniform(0.5, 2, 16).astype(np.float32) for _ in range(2)]
    heads: Any = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": True}
    end = [None, None, np.array([4, 2], np.int32), np.array([5], np.int32), *_rotation(rng)]

    def normalized(x: Any, weight: Any, epsilon: float) -> Any:
        by_heads = x.reshape(2, 5, -1, 16).astype(np.float64)
        root = np.sqrt((by_heads**2).mean(3, keepdims=True) + epsilon)
        return (by_heads / root * weight).reshape(x.shape).astype(np.float32)

    sides = [np.concatenate((q, k, v), 2), None, None] if packed else [q, k, v]
    op = GroupQueryAttention(**heads, qk_norm_epsilon=0.5, k_norm_epsilon=0.01)
    found = reference(op, *sides, *end, *[None] * 5, *weights)
    plain = GroupQueryAttention(**heads)
    want = plain.reference(normalized(q, weights[0], 0.5), normalized(k, weights[1], 0.01), v, *end)
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_not_taken_is_refused() -> None:
    with pytest.raises(OperatorError, match="'qk_output' is set otherwise"):
        GroupQueryAttention(num_heads=2, kv_num_heads=1, qk_output=1)
    with pytest.raises(OperatorError, match="sliding caches of 3 keys with window 4; accepted: 1 to 3"):
        CachedAttention(2, 1, 3, window=4, sliding=True)
    with pytest.raises(OperatorError, match="a multiple"):
        GroupQueryAttention(num_heads=3, kv_num_heads=2)
    with pytest.raises(OperatorError, match="do_rotary"):
        Attention(num_heads=2, do_rotary=True)


@pytest.mark.parametrize("rotary", [0, 1])
def test_caches_longer_than_the_total_as_onnxruntime_takes_them(agree: Any, rng: Any, rotary: int) -> None:
    heads, kv, size = 6, 2, 16
    q, k, v = (rng.standard_normal((2, 1, n * size)).astype(np.float32) for n in (heads, kv, kv))
    keys, values = (rng.standard_normal((2, kv, 12, size)).astype(np.float32) for _ in range(2))
    angles = rng.uniform(-3, 3, (16, size // 2)).astype(np.float32)
    keys, values = (np.where(np.arange(12)[:, None] < np.array([5, 8])[:, None, None, None], x, 0) for x in (keys, values))
    arrays = [q, k, v, keys, values, np.array([5, 8], np.int32), np.array([12], np.int32)]
    arrays += [np.cos(angles), np.sin(angles)] if rotary else []
    report = agree("GroupQueryAttention", arrays, outputs=3, constants=(6,), num_heads=heads, kv_num_heads=kv, do_rotary=rotary)
    assert [node.kernel for node in report.nodes] == ["cached_attention"]
