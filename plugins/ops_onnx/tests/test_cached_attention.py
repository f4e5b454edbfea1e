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
    run = kernel.bind(op, HostConfig((), ()), inputs, outputs)  # type: ignore[attr-defined]  # it is a host kernel
    run()
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


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("half", [SIZE // 2, SIZE // 2 - 1])
def test_a_token_of_several_texts(rng: Any, interleaved: bool, is_packed: bool, half: int) -> None:
    """Its request calls it again with other numbers and lengths in the same memory."""
    op = CachedAttention(HEADS, KV, 9, interleaved=interleaved)
    q, k, v, *caches, lengths, cos, sin = _inputs(rng, 1, [1, 1], 9)
    cos, sin = (np.concatenate([x, x], 1)[:, :half] for x in (cos, sin))
    packed = np.concatenate([q, k, v], 2)
    sides = [packed, None, None] if is_packed else [q, k, v]
    dst, ids = np.empty_like(q), np.zeros((2, 1), np.int64)
    run = op.kernels[0].bind(op, HostConfig((), ()), [*sides, *caches, lengths, cos, sin, ids, None, None], [dst, *caches])  # type: ignore[attr-defined]  # it is a host kernel
    for counts in ([3, 9], [1, 4]):
        new = [_floats(rng, *x.shape) for x in (q, k, v)]
        for known, numbers in zip((q, k, v), new, strict=True):
            known[...] = numbers
        packed[...] = np.concatenate(new, 2)
        lengths[...] = ids[:, 0] = np.array(counts) - 1
        want = _expected(op, *new, caches, counts, cos, sin)
        run()
        for found, expected in zip((dst, *caches), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [{}, {"window": 2, "softcap": 2.0}], ids=str)
@pytest.mark.parametrize("strength", [-3.0, 0.0, 300.0])
@pytest.mark.parametrize("sequence", [1, 3])
def test_a_sink_is_a_key_whose_value_is_zeros(rng: Any, how: dict[str, Any], strength: float, sequence: int) -> None:
    """As attention without it, times the part of the weights that is not the sink's; computed in float64."""
    op = CachedAttention(HEADS, KV, 9, **how)
    given, counts = _inputs(rng, sequence, [5, 9], 9), [5, 9]
    given[6:] = [None, None]
    sink = (rng.standard_normal(HEADS) + strength).astype(np.float32)
    want, *caches = _expected(op, *given[:3], given[3:5], counts, None, None)
    want = want.reshape(2, sequence, HEADS, SIZE)
    for b, i, h in np.ndindex(2, sequence, HEADS):
        last = counts[b] - sequence + i + 1
        first = max(0, last - op.window) if op.window > 0 else 0
        query = given[0][b, i, h * SIZE : (h + 1) * SIZE].astype(np.float64)
        scores = caches[0][b, h // (HEADS // KV), first:last] @ query / math.sqrt(SIZE)
        scores = op.softcap * np.tanh(scores / op.softcap) if op.softcap else scores
        top = max(scores.max(), sink[h])
        mass = np.exp(scores - top).sum()
        want[b, i, h] *= mass / (mass + np.exp(sink[h] - top))
    inputs = [*given, None, None, sink]
    found = op.reference(*inputs)
    outputs = [np.empty_like(given[0]), *given[3:5]]
    op.kernels[0].bind(op, HostConfig((), ()), inputs, outputs)()  # type: ignore[attr-defined]  # it is a host kernel
    for y in (outputs[0], found[0]):
        np.testing.assert_allclose(y, want.reshape(2, sequence, -1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("room", [5, 6, 9, 40])
@pytest.mark.parametrize("steps", [[1] * 23, [7, 1, 1, 4, 10], [23], [5, 18], [4, 1, 1, 1, 16]], ids=str)
@pytest.mark.parametrize("in_place", [True, False])
def test_sliding_caches_hold_the_last_keys(rng: Any, room: int, steps: list[int], in_place: bool) -> None:
    """As attention with a window over all keys, however these come in."""
    window, total = 5, sum(steps)
    given = _inputs(rng, total, [total, total])
    given[8:] = []
    rotation = given[6:8]
    whole = CachedAttention(HEADS, KV, ROOM, window=window)
    want, keys, values = _expected(whole, *given[:3], given[3:5], [total, total], *rotation)
    op = CachedAttention(HEADS, KV, room, window=window, sliding=True)
    caches = [np.full((2, KV, room, SIZE), 7, np.float32) for _ in range(2)]
    done = 0
    for count in steps:
        new = [x[:, done : done + count] for x in given[:3]]
        done += count
        lengths = np.full(2, done - 1, np.int32)
        found = op.reference(*new, *caches, lengths, *rotation)
        given_caches = [x.copy() for x in caches]
        outputs = [np.empty_like(new[0]), *(given_caches if in_place else map(np.empty_like, caches))]
        op.kernels[0].execute(op, HostConfig((), ()), [*new, *given_caches, lengths, *rotation, None, None], outputs)  # type: ignore[attr-defined]  # it is a host kernel
        spare = room - window + 1
        kept = done if done <= room else done - spare * math.ceil((done - room) / spare)
        assert op.resident(done) == kept
        for y, *after in (outputs, found):
            np.testing.assert_allclose(y, want[:, done - count : done], rtol=1e-4, atol=1e-5)
            for cache, every in zip(after, (keys, values), strict=True):
                np.testing.assert_allclose(cache[:, :, :kept], every[:, :, done - kept : done], rtol=1e-4, atol=1e-5)
        caches = outputs[1:]


def test_rows_that_fill_up_a_prompt_do_not_enter_sliding_caches(rng: Any) -> None:
    op = CachedAttention(HEADS, KV, 4, window=3, sliding=True)
    given = _inputs(rng, 6, [3, 6], 4)
    found = op.reference(*given[:6])
    outputs = [np.empty_like(given[0]), *(x.copy() for x in given[3:5])]
    op.kernels[0].execute(op, HostConfig((), ()), [*given[:6], None, None, None, None], outputs)  # type: ignore[attr-defined]  # it is a host kernel
    keys = given[1].reshape(2, 6, KV, SIZE).transpose(0, 2, 1, 3)
    for _, cache, _ in (outputs, found):
        np.testing.assert_array_equal(cache[0, :, :3], keys[0, :, :3])
        np.testing.assert_array_equal(cache[1], keys[1, :, 2:])


@pytest.mark.parametrize(("sequence", "counts"), [(1, [10]), (1, [0]), (10, [4])], ids=str)
def test_what_the_caches_cannot_hold_is_refused(rng: Any, sequence: int, counts: list[int]) -> None:
    op = CachedAttention(HEADS, KV, 9)
    given = _inputs(rng, sequence, counts, 9)
    with pytest.raises(OperatorError, match=rf"'seqlens_k' is \[{counts[0] - 1}\] for {sequence} queries; accepted: 0 to 8"):
        _run(op, given, True)
