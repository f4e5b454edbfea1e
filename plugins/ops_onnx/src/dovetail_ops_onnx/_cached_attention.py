"""The kernel of CachedAttention for the host: caches are written where they are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import HostConfig, HostKernel, TensorType
from dovetail_ops_onnx._cached_token import token_call
from dovetail_ops_onnx._elementwise import wide

if TYPE_CHECKING:
    from dovetail_ops_onnx.cached_attention import CachedAttention

__all__ = ["InPlace"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]

_QUERIES = 128
"""Queries at a time: their scores with all keys of a cache are in memory at once."""

_CACHES = ((1, 3), (2, 4))
"""Outputs that are caches, each with the input that it continues."""


class InPlace(HostKernel):
    """Writes the new keys and values into the caches, in place where these may be taken over, and attends to the keys used."""

    name = "cached_attention"

    def configurations(self, op: Any, inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        config = HostConfig.uniform(inputs, outputs)
        ports = list(config.outputs)
        for output, past in _CACHES:
            port = ports[output] if output < len(ports) else None
            if port is not None and inputs[past] == outputs[output]:
                ports[output] = replace(port, in_place=past)
        return (replace(config, outputs=tuple(ports)), config)

    def bind(
        self, op: "CachedAttention", config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> Callable[[], object]:
        return token_call(op, inputs, outputs) or super().bind(op, config, inputs, outputs)

    def execute(
        self, op: "CachedAttention", config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> None:
        query, key, value, past_key, past_value, lengths, cos, sin, ids, bias, sink = (*inputs, *[None] * 5)[:11]
        dst, *caches = (*outputs, None, None)[:3]
        assert query is not None
        assert lengths is not None
        assert dst is not None
        size = dst.shape[2] // op.heads
        q, k, v = op.split(query, key, value, size)
        starts = op.starts(lengths, q.shape[2])
        places = starts[:, None] + np.arange(q.shape[2])
        if cos is not None and sin is not None:
            at = np.minimum(places, len(cos) - 1) if ids is None else ids
            c, s = (table[at][:, None].astype(np.float32, copy=False) for table in (cos, sin))
            q, k = (_rotated(x, c, s, op.interleaved) for x in (q, k))
        held = [
            _filled(cache, past, new, op.room) for cache, past, new in zip(caches, (past_key, past_value), (k, v), strict=True)
        ]
        y = dst.reshape(*dst.shape[:2], op.heads, size).swapaxes(1, 2)
        for b, (start, count) in enumerate(zip(starts.tolist(), lengths.reshape(-1).tolist(), strict=True)):
            valid = count + 1 - start if op.sliding else q.shape[2]
            keys, values = (_extended(op, cache[b], new[b], start, valid) for cache, new in zip(held, (k, v), strict=True))
            gone = start - op.resident(start)
            added = None if bias is None else bias[b % len(bias), ..., gone:]
            _attend(op, q[b], keys, values, places[b] - gone, (added, sink), y[b])


def _filled(cache: Array | None, past: Array | None, new: Array, room: int) -> Array:
    """The cache [batch, heads, room, size] with the past, and zeros behind it."""
    if cache is None:
        cache = np.empty((*new.shape[:2], room, new.shape[3]), new.dtype)
    before = 0 if past is None else past.shape[2]
    if past is not None and past is not cache:
        cache[:, :, :before] = past
    cache[:, :, before:] = 0
    return cache


def _extended(op: "CachedAttention", cache: Array, new: Array, start: int, valid: int) -> Array:
    """The keys or values of a sample, `start` before the new ones. The cache gets the last of those that are valid."""
    held, kept = op.resident(start), op.resident(start + valid)
    end = held + new.shape[1]
    if kept == end:
        cache[:, held:end] = new
        return cache[:, :end]
    every = np.concatenate((cache[:, :held], new), 1)
    cache[:, :kept] = every[:, held + valid - kept : held + valid]
    return every


def _rotated(x: Array, c: Array, s: Array, interleaved: bool) -> Array:
    """x [batch, heads, sequence, size] with the pairs of elements turned by angles [batch, 1, sequence, up to size / 2]."""
    count = 2 * c.shape[3]
    y = np.empty(x.shape, x.dtype)
    y[..., count:] = x[..., count:]
    halves = (slice(0, count, 2), slice(1, count, 2)) if interleaved else (slice(0, count // 2), slice(count // 2, count))
    first, second = (x[..., half].astype(np.float32, copy=False) for half in halves)
    np.subtract(first * c, second * s, out=y[..., halves[0]], casting="same_kind")
    np.add(first * s, second * c, out=y[..., halves[1]], casting="same_kind")
    return y


def _attend(
    op: "CachedAttention",
    q: Array,
    keys: Array,
    values: Array,
    places: Array,
    extras: tuple[Array | None, Array | None],
    dst: Array,
) -> None:
    """One sample: q and dst [heads, sequence, size], keys and values [kv heads, used, size]; extras are bias and sink."""
    bias, sink = extras
    k, v = wide(keys), wide(values)
    kv, _, size = k.shape
    factor = np.float32(op.scale or 1 / math.sqrt(size))
    for first in range(0, q.shape[1], _QUERIES):
        rows = slice(first, first + _QUERIES)
        at = places[rows]
        # No query sees keys after its own, nor before its window.
        end = min(int(at[-1]) + 1, k.shape[1])
        begin = max(0, int(at[0]) + 1 - op.window) if op.window > 0 else 0
        part = q[:, rows].astype(np.float32) * factor
        scores = part.reshape(kv, -1, size) @ k[:, begin:end].swapaxes(1, 2)
        scores = scores.reshape(q.shape[0], len(at), end - begin)
        if op.softcap > 0:
            scores = op.softcap * np.tanh(scores / np.float32(op.softcap))
        if bias is not None:
            scores = scores + bias[:, rows, begin:end].astype(np.float32)
        if len(at) > 1:
            np.copyto(scores, -np.inf, where=_hidden(at, begin, end, op.window))  # in a fifth of an assignment's time
        top = scores.max(2, keepdims=True)
        if sink is not None:
            top = np.maximum(top, sink[:, None, None], dtype=np.float32)
        scores -= top
        np.exp(scores, scores)
        total = scores.sum(2, keepdims=True)
        if sink is not None:
            total += np.exp(sink[:, None, None] - top)
        y = (scores.reshape(kv, -1, end - begin) @ v[:, begin:end]).reshape(q.shape[0], len(at), size)
        dst[:, rows] = y / total


def _hidden(at: Array, begin: int, end: int, window: int) -> Array:
    """The keys [queries, end - begin] that a query does not see."""
    distance = at[:, None] - np.arange(begin, end)
    hidden: Array = distance < 0
    return hidden | (distance >= window) if window > 0 else hidden
