"""The reference of Attention without its composition, against float64 and the composition."""

import itertools
from typing import Any

import numpy as np
import pytest

from dovetail.op import DType, evaluate_composition
from dovetail_ops_onnx._attention_reference import attended
from dovetail_ops_onnx.attention import Attention, Attention_23, Sizes

HEADS, KV, SIZE, V_SIZE = 4, 2, 6, 5

FORMS: list[dict[str, Any]] = [
    {},
    {"is_causal": True, "scale": -0.3},
    {"softcap": 2.0, "left_window_size": 2, "right_window_size": 0},
    {"softmax_precision": DType.FLOAT64, "dtype": np.float64},
]


def _inputs(batch: int, queries: int, keys: int, past: int, mask: str, dtype: Any) -> list[Any]:
    rng = np.random.default_rng([batch, queries, keys, past])
    total = past + keys
    shapes = [(batch, HEADS, queries, SIZE), (batch, KV, keys, SIZE), (batch, KV, keys, V_SIZE)]
    given: list[Any] = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    masks = {"bool": rng.random((batch, 1, queries, total)) < 0.5, "numbers": rng.standard_normal((queries, total)).astype(dtype)}
    caches = [rng.standard_normal((batch, KV, past, size)).astype(dtype) for size in (SIZE, V_SIZE)] if past else []
    return [*given, masks.get(mask), *caches]


def _wanted(op: Attention, q: Any, k: Any, v: Any, mask: Any, past_key: Any = None, past_value: Any = None) -> list[Any]:
    """Y, the caches, and the scores after each stage, in float64."""
    k, v = (one if old is None else np.concatenate([old, one], 2) for one, old in ((k, past_key), (v, past_value)))
    q, keys, values = (np.float64(one) for one in (q, *(np.repeat(one, HEADS // KV, 1) for one in (k, v))))
    products = np.einsum("bhqd,bhkd->bhqk", q, keys) * (SIZE**-0.5 if op.scale is None else op.scale)
    capped = op.softcap * np.tanh(products / op.softcap) if op.softcap else products
    distance = np.arange(q.shape[2])[:, None] + k.shape[2] - (k.shape[2] if past_key is None else k.shape[2] - past_key.shape[2])
    distance = distance - np.arange(k.shape[2])
    seen = (distance >= 0) | (not op.is_causal)
    left, right = op.window
    seen &= ((left < 0) | (distance <= left)) & ((right < 0) | (distance >= -right))
    bias = np.where(seen, 0.0, -np.inf)
    if mask is not None:
        bias = bias + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask)
    masked = capped + bias
    greatest = masked.max(-1, keepdims=True, initial=-1e300)
    weights = np.exp(masked - greatest)
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    return [np.einsum("bhqk,bhkd->bhqd", weights, values), k, v, products, capped, masked, weights]


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("mask", ["", "bool", "numbers"])
@pytest.mark.parametrize("form", range(len(FORMS)))
def test_results_are_those_of_the_formula(form: int, mask: str, mode: int) -> None:
    attributes = dict(FORMS[form])
    dtype = attributes.pop("dtype", np.float32)
    op = Attention(qk_matmul_output_mode=mode, **attributes)
    for batch, queries, keys, past in itertools.product((0, 1, 3), (1, 5), (1, 5), (0, 7)):
        given = _inputs(batch, queries, keys, past, mask, dtype)
        found, (y, k, v, *stages) = attended(op, *given), _wanted(op, *given)
        assert found is not None
        for one, want in zip(found, (y, k, v, stages[mode]), strict=True):
            assert one.dtype == dtype
            np.testing.assert_allclose(one, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("batch", "queries"), [(3, 5), (0, 5), (3, 0)])
def test_packed_heads_are_those_of_four_dimensions(batch: int, queries: int) -> None:
    q, k, v, mask = _inputs(batch, queries, 5, 0, "bool", np.float32)
    flat = [one.swapaxes(1, 2).reshape(batch, one.shape[2], one.shape[1] * one.shape[3]) for one in (q, k, v)]
    packed = attended(Attention(q_num_heads=HEADS, kv_num_heads=KV), flat[0], flat[1], flat[2], mask)
    plain = attended(Attention(), q, k, v, mask)
    assert packed is not None
    assert plain is not None
    np.testing.assert_array_equal(packed[0], plain[0].swapaxes(1, 2).reshape(batch, queries, HEADS * V_SIZE))
    for one, other in zip(packed[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", ["half", "mixed", "short mask", "lengths", "precision"])
def test_other_forms_are_those_of_the_composition(case: str) -> None:
    q, k, v, mask = _inputs(1, 2, 3, 0, "numbers", np.float32)
    given: list[Any] = {
        "half": [np.float16(one) for one in (q, k, v)],
        "mixed": [q, k, np.float64(v)],
        "short mask": [q, k, v, mask[:, :2]],
        "lengths": [q, k, v, None, None, None, np.array([2])],
        "precision": [q, k, v],
    }[case]
    op = Attention(softmax_precision=DType.FLOAT64 if case == "precision" else None)
    assert attended(op, *given) is None
    for one, other in zip(op.reference(*given), evaluate_composition(op, given), strict=True):
        np.testing.assert_array_equal(one, other)


def test_infinities_and_hidden_rows_are_as_in_the_composition() -> None:
    q, k, v, _ = _inputs(1, 4, 3, 0, "", np.float32)
    q[0, 0, 0], k[0, 1, 2], v[0, 0, 1] = np.inf, np.nan, -np.inf
    mask = np.array([[True] * 3, [False] * 3, [True, False, True], [False, True, False]])
    op = Attention_23()
    for one, other in zip(op.reference(q, k, v, mask), evaluate_composition(op, [q, k, v, mask]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("left", [-1, 0, 1, 2, 5])
@pytest.mark.parametrize("right", [-1, 0, 1, 3])
def test_whether_every_query_sees_every_key(causal: bool, left: int, right: int) -> None:
    op = Attention(is_causal=causal, left_window_size=left, right_window_size=right)
    for queries, keys, past in itertools.product((0, 1, 2, 5), (0, 1, 3), (0, 1, 4)):
        s = Sizes(1, HEADS, KV, queries, keys, past, SIZE, V_SIZE)
        assert op.sees_all(s) == op.visible(s).all(), s
