"""CachedAttention with caches that have room, against attention head by head and query by query in float64."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail.op import HostConfig, OperatorError
from dovetail_ops_onnx.cached_attention import CachedAttention

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


def _expected(op: Any, q: Array, k: Array, v: Array, caches: Any, counts: Any, cos: Any, sin: Any) -> list[Array]:
    """The output and the caches, in float64."""
    batch, sequence = q.shape[:2]
    y = np.zeros((batch, sequence, HEADS, SIZE))
    keys, values = (cache.astype(np.float64) for cache in caches)
    for b in range(batch):
        start = max(counts[b] - sequence, 0)
        turn = (lambda x, at: x) if cos is None else (lambda x, at: _turned(x, cos, sin, at, op.interleaved))
        for i in range(sequence):
            for h in range(KV):
                keys[b, h, start + i] = turn(k[b, i, h * SIZE : (h + 1) * SIZE], start + i)
                values[b, h, start + i] = v[b, i, h * SIZE : (h + 1) * SIZE]
        for i in range(sequence):
            last = start + i + 1
            first = max(0, last - op.window) if op.window > 0 else 0
            for h in range(HEADS):
                query, g = turn(q[b, i, h * SIZE : (h + 1) * SIZE], start + i).astype(np.float64), h // (HEADS // KV)
                scores = keys[b, g, first:last] @ query * (op.scale or 1 / math.sqrt(SIZE))
                scores = op.softcap * np.tanh(scores / op.softcap) if op.softcap else scores
                weights = np.exp(scores - scores.max())
                y[b, i, h] = weights / weights.sum() @ values[b, g, first:last]
    return [y.reshape(q.shape), keys, values]


def _inputs(rng: np.random.Generator, sequence: int, counts: list[int], room: int = ROOM) -> list[Any]:
    q, k, v = (_floats(rng, len(counts), sequence, heads * SIZE) for heads in (HEADS, KV, KV))
    caches = [_floats(rng, len(counts), KV, room, SIZE) for _ in range(2)]
    angles = rng.uniform(-3, 3, (room, SIZE // 2 - 1)).astype(np.float32)
    return [q, k, v, *caches, np.array(counts, np.int32) - 1, np.cos(angles), np.sin(angles)]


def _run(op: CachedAttention, given: list[Any], in_place: bool) -> list[Array]:
    (kernel,) = op.kernels
    caches = [x.copy() for x in given[3:5]] if in_place else [np.full_like(x, np.nan) for x in given[3:5]]
    outputs = [np.full_like(given[0], np.nan), *caches]
    inputs = [*given[:3], *(caches if in_place else given[3:5]), *given[5:], None, None]
    kernel.execute(op, HostConfig((), ()), inputs, outputs)  # type: ignore[attr-defined]  # it is a host kernel
    return outputs


@pytest.mark.parametrize(
    ("sequence", "counts"), [(1, [1, 200]), (3, [3, 41]), (5, [2, 290]), (140, [140, 260]), (4, [])], ids=str
)
@pytest.mark.parametrize(("how", "rotary"), [({}, 0), ({"window": 3}, 1), ({"softcap": 1.5, "scale": 0.4}, 0)], ids=str)
@pytest.mark.parametrize("in_place", [True, False])
def test_attention_with_room(
    rng: Any, sequence: int, counts: list[int], how: dict[str, Any], rotary: int, in_place: bool
) -> None:
    op = CachedAttention(HEADS, KV, ROOM, **how)
    given = _inputs(rng, sequence, counts)
    given[6:] = given[6:] if rotary else [None, None]
    want = _expected(op, *given[:3], given[3:5], counts, *given[6:])
    for found, expected in zip(_run(op, given, in_place), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_interleaved_pairs(rng: Any) -> None:
    op = CachedAttention(HEADS, KV, 9, interleaved=True)
    given = _inputs(rng, 2, [7], 9)
    for found, expected in zip(_run(op, given, True), _expected(op, *given[:3], given[3:5], [7], *given[6:]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("sequence", "counts"), [(1, [10]), (1, [0]), (10, [4])], ids=str)
def test_what_the_caches_cannot_hold_is_refused(rng: Any, sequence: int, counts: list[int]) -> None:
    op = CachedAttention(HEADS, KV, 9)
    given = _inputs(rng, sequence, counts, 9)
    with pytest.raises(OperatorError, match=rf"'seqlens_k' is \[{counts[0] - 1}\] for {sequence} queries; accepted: 0 to 8"):
        _run(op, given, True)
