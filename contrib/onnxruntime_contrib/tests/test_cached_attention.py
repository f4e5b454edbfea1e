"""GroupQueryAttention with caches that have room, against attention head by head and query by query in float64."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail.op import HostConfig, OperatorError
from dovetail_ops_onnxruntime_contrib import GroupQueryAttention

Array = np.ndarray[Any, Any]

HEADS, KV, SIZE, ROOM = 6, 2, 16, 300


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _turned(x: Array, cos: Array, sin: Array, position: int, interleaved: bool) -> Array:
    """One head turned, pair by pair."""
    y = x.astype(np.float64)
    pairs = cos.shape[1]
    for p in range(pairs):
        i, j = (2 * p, 2 * p + 1) if interleaved else (p, p + pairs)
        c, s = float(cos[position, p]), float(sin[position, p])
        y[i], y[j] = x[i] * c - x[j] * s, x[i] * s + x[j] * c
    return y


def _expected(op: Any, q: Array, k: Array, v: Array, caches: Any, counts: Any, cos: Array, sin: Array) -> list[Array]:
    """The output and the caches, in float64."""
    batch, sequence = q.shape[:2]
    y = np.zeros((batch, sequence, HEADS, SIZE))
    keys, values = (cache.astype(np.float64) for cache in caches)
    for b in range(batch):
        start = max(counts[b] - sequence, 0)
        turn = (lambda x, at: _turned(x, cos, sin, at, op.rotary_interleaved)) if op.do_rotary else (lambda x, at: x)
        for i in range(sequence):
            for h in range(KV):
                keys[b, h, start + i] = turn(k[b, i, h * SIZE : (h + 1) * SIZE], start + i)
                values[b, h, start + i] = v[b, i, h * SIZE : (h + 1) * SIZE]
        for i in range(sequence):
            last = start + i + 1
            first = max(0, last - op.local_window_size) if op.local_window_size > 0 else 0
            for h in range(HEADS):
                query, g = turn(q[b, i, h * SIZE : (h + 1) * SIZE], start + i).astype(np.float64), h // (HEADS // KV)
                scores = keys[b, g, first:last] @ query * (op.scale or 1 / math.sqrt(SIZE))
                scores = op.softcap * np.tanh(scores / op.softcap) if op.softcap else scores
                weights = np.exp(scores - scores.max())
                y[b, i, h] = weights / weights.sum() @ values[b, g, first:last]
    return [y.reshape(q.shape), keys, values]


def _inputs(rng: np.random.Generator, sequence: int, counts: list[int], room: int = ROOM) -> list[Array]:
    q, k, v = (_floats(rng, len(counts), sequence, heads * SIZE) for heads in (HEADS, KV, KV))
    caches = [_floats(rng, len(counts), KV, room, SIZE) for _ in range(2)]
    angles = rng.uniform(-3, 3, (room, SIZE // 2 - 1)).astype(np.float32)
    ends = [np.array(counts, np.int32) - 1, np.array([room], np.int32)]
    return [q, k, v, *caches, *ends, np.cos(angles), np.sin(angles)]


def _run(op: GroupQueryAttention, given: list[Array], in_place: bool) -> list[Array]:
    (kernel,) = op.kernels
    caches = [x.copy() for x in given[3:5]] if in_place else [np.full_like(x, np.nan) for x in given[3:5]]
    outputs = [np.full_like(given[0], np.nan), *caches]
    inputs = [*given[:3], *(caches if in_place else given[3:5]), *given[5:], None, None]
    kernel.execute(op, HostConfig((), ()), inputs, outputs)  # type: ignore[attr-defined]  # it is a host kernel
    return outputs


@pytest.mark.parametrize(
    ("sequence", "counts"), [(1, [1, 200]), (3, [3, 41]), (5, [2, 290]), (140, [140, 260]), (4, [])], ids=str
)
@pytest.mark.parametrize("how", [{}, {"local_window_size": 3, "do_rotary": True}, {"softcap": 1.5, "scale": 0.4}], ids=str)
@pytest.mark.parametrize("in_place", [True, False])
def test_attention_with_room(rng: Any, sequence: int, counts: list[int], how: dict[str, Any], in_place: bool) -> None:
    op = GroupQueryAttention(num_heads=HEADS, kv_num_heads=KV, **how)
    given = _inputs(rng, sequence, counts)
    want = _expected(op, *given[:3], given[3:5], counts, *given[7:])
    for found, expected in zip(_run(op, given, in_place), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_interleaved_pairs(rng: Any) -> None:
    op = GroupQueryAttention(num_heads=HEADS, kv_num_heads=KV, do_rotary=True, rotary_interleaved=True)
    given = _inputs(rng, 2, [7], 9)
    for found, expected in zip(_run(op, given, True), _expected(op, *given[:3], given[3:5], [7], *given[7:]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("sequence", "counts"), [(1, [10]), (1, [0]), (10, [4])], ids=str)
def test_what_the_caches_cannot_hold_is_refused(rng: Any, sequence: int, counts: list[int]) -> None:
    op = GroupQueryAttention(num_heads=HEADS, kv_num_heads=KV)
    given = _inputs(rng, sequence, counts, 9)
    with pytest.raises(OperatorError, match=rf"'seqlens_k' is \[{counts[0] - 1}\] for {sequence} queries; accepted: 0 to 8"):
        _run(op, given, True)


@pytest.mark.parametrize("rotary", [0, 1])
def test_caches_longer_than_the_total_as_onnxruntime_takes_them(agree: Any, rng: Any, rotary: int) -> None:
    q, k, v, keys, values, *_ = _inputs(rng, 1, [6, 9], 12)
    angles = rng.uniform(-3, 3, (16, SIZE // 2)).astype(np.float32)
    keys, values = (np.where(np.arange(12)[:, None] < np.array([5, 8])[:, None, None, None], x, 0) for x in (keys, values))
    arrays = [q, k, v, keys, values, np.array([5, 8], np.int32), np.array([12], np.int32)]
    arrays += [np.cos(angles), np.sin(angles)] if rotary else []
    report = agree("GroupQueryAttention", arrays, outputs=3, constants=(6,), num_heads=HEADS, kv_num_heads=KV, do_rotary=rotary)
    assert [node.kernel for node in report.nodes] == ["cached_attention"]
