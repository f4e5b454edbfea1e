"""CachedAttention of one new token a text: views that do not change from run to run are made once for a request."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dovetail_ops_onnx.cached_attention import CachedAttention

__all__ = ["token_call"]

Array = NDArray[Any]
Turn = Callable[[Array, Array], None]
"""Turns pairs of numbers by cosines and sines, one of each for a pair."""


def token_call(
    op: "CachedAttention", inputs: Sequence[Array | None], outputs: Sequence[Array | None]
) -> Callable[[], None] | None:
    """The call of each run; None for other queries than one token of float32, caches that are not in place, and a bias."""
    query, key, value, past_key, past_value, lengths, cos, sin, ids, bias, sink = (*inputs, *[None] * 5)[:11]
    dst, keys, values = (*outputs, None, None)[:3]
    if query is None or lengths is None or dst is None or query.shape[1] != 1 or query.dtype != np.float32:
        return None
    if op.sliding or bias is not None or not _is_same(past_key, keys) or not _is_same(past_value, values):
        return None
    assert keys is not None
    assert values is not None
    size, room, group = dst.shape[2] // op.heads, op.room, op.heads // op.kv_heads
    tables = None if cos is None or sin is None else (cos, sin)
    texts = []
    for text in range(len(query)):
        q, k, v, turns = _token(op, text, (query, key, value), size, None if tables is None else tables[0].shape[1])
        y = dst[text, 0].reshape(op.kv_heads, group, size)
        texts.append((turns, (q, np.empty_like(q)), k, v, keys[text], values[text], y))
    factor, sinks = np.float32(op.factor(size)), None if sink is None else sink.reshape(op.kv_heads, group, 1)

    def run() -> None:
        counts = lengths.reshape(-1).tolist()
        if min(counts, default=0) < 0 or max(counts, default=0) >= room:
            op.starts(lengths, 1)  # which raises
        for text, (place, one) in enumerate(zip(counts, texts, strict=True)):
            turns, (q, scaled), k, v, keys, values, y = one
            if tables is not None:
                at = min(place, len(tables[0]) - 1) if ids is None else ids[text, 0]
                for turn in turns:
                    turn(tables[0][at], tables[1][at])
            keys[:, place], values[:, place] = k, v
            np.multiply(q, factor, scaled)
            first = max(0, place + 1 - op.window) if op.window > 0 else 0
            _attend(scaled, keys[:, first : place + 1], values[:, first : place + 1], y, op.softcap, sinks)

    return run


def _token(
    op: "CachedAttention", text: int, given: tuple[Array, Array | None, Array | None], size: int, half: int | None
) -> tuple[Array, Array, Array, list[Turn]]:
    """Query, key and value of a text's token as [heads, size], and what turns the first two by `half` pairs, if that is asked."""
    q, k, v = (one[text, :, 0] for one in op.split(*given, size))
    if half is None:
        return q, k, v, []
    turned = np.empty((op.heads + op.kv_heads, size), np.float32)
    pairs = [(q, turned[: op.heads]), (k, turned[op.heads :])]
    if given[1] is None:  # queries and keys are side by side
        pairs = [(given[0][text, 0, : turned.size].reshape(turned.shape), turned)]
    return turned[: op.heads], turned[op.heads :], v, [_turn(x, y, half, op.interleaved) for x, y in pairs]


def _attend(q: Array, keys: Array, values: Array, dst: Array, softcap: float, sinks: Array | None) -> None:
    """Attention of scaled queries to the tokens of a cache, into `dst` [heads of the cache, queries for each, size]."""
    scores = q.reshape(dst.shape) @ keys.swapaxes(1, 2)
    if softcap > 0:
        scores = softcap * np.tanh(scores / np.float32(softcap))
    top = np.maximum.reduce(scores, 2, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks)
    np.subtract(scores, top, scores)
    np.exp(scores, scores)
    total = np.add.reduce(scores, 2, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks - top)
    np.divide(scores @ values, total, dst)


def _is_same(one: Array | None, other: Array | None) -> bool:
    """Whether both are there, in the same memory."""
    return one is not None and other is not None and one.shape == other.shape and one.ctypes.data == other.ctypes.data


def _turn(x: Array, y: Array, half: int, interleaved: bool) -> Turn:
    """Writes the heads of x [heads, size], turned, to y: pairs times cosines, and swapped pairs times sines."""
    dims = (len(x), half, 2) if interleaved else (len(x), 2, half)
    before, after = x[:, : 2 * half].reshape(dims), y[:, : 2 * half].reshape(dims)
    swapped = before[:, :, ::-1] if interleaved else before[:, ::-1]
    signs, product = np.array([-1, 1], np.float32), np.empty(dims, np.float32)
    signs = signs if interleaved else signs[:, None]
    rest = None if 2 * half == x.shape[1] else (y[:, 2 * half :], x[:, 2 * half :])

    def turn(cos: Array, sin: Array) -> None:
        if interleaved:
            cos, sin = cos[:, None], sin[:, None]
        np.multiply(before, cos, after)
        np.multiply(swapped, sin * signs, product)
        np.add(after, product, after)
        if rest is not None:
            rest[0][...] = rest[1]

    return turn
