"""Attention with a cache of keys and values. Operators of decoders are composed of it; it is not in the standard."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import AbstractOperator, HostConfig, KernelSource, OperatorError, Port, ShapeError, TensorType
from dovetail_ops_onnx._cached_attention import InPlace
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding

__all__ = ["CachedAttention"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class CachedAttention(AbstractOperator):
    """Causal attention of query [batch, sequence, heads * H] to keys and values of `kv_heads` heads and a cache of them.

    Without key and value the query holds all three. The caches that come in are [batch, kv_heads, length, H], those that go out
    have a length of `room`. `seqlens_k[b]` + 1 keys of sample b count in all, the new ones being the last of them; what follows
    these in the cache is as it was, or 0. With `cos_cache` and `sin_cache` [positions, up to H / 2] queries and new keys are
    turned, at `position_ids` or their places in the cache, in pairs of neighbours if `interleaved`. A query sees `window`
    keys, its own included; -1: all before it. `softcap` c makes the scores c * tanh(scores / c). `attention_bias` is added to
    the scores [batch, heads, sequence, up to room]; its first two dimensions may be 1. `scale` 0 is 1 / sqrt(H). `head_sink`
    [heads] is the score of one more key, whose value is zeros.

    `sliding` caches hold the last keys only, those that `resident` counts, from their first row on. `room` is at least `window`.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "CachedAttention"
    stem: ClassVar[str] = "cached_attention"
    inputs: ClassVar[tuple[Port, ...]] = (
        Port("query"),
        *(Port(name, optional=True) for name in ("key", "value", "past_key", "past_value")),
        Port("seqlens_k"),
        *(Port(name, optional=True) for name in ("cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink")),
    )
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(
        dict.fromkeys(("heads", "kv_heads", "room", "scale", "softcap", "window", "interleaved", "sliding"))
    )
    outputs: ClassVar[tuple[Port, ...]] = (
        Port("output"),
        Port("present_key", optional=True),
        Port("present_value", optional=True),
    )
    kernels: ClassVar[tuple[KernelSource, ...]] = (InPlace(),)

    heads: int
    kv_heads: int
    room: int
    scale: float = 0.0
    softcap: float = 0.0
    window: int = -1
    interleaved: bool = False
    sliding: bool = False

    def __post_init__(self) -> None:
        if self.sliding and not 1 <= self.window <= self.room:
            raise OperatorError(f"sliding caches of {self.room} keys with window {self.window}; accepted: 1 to {self.room}")
        if self.kv_heads < 1 or self.heads < 1 or self.heads % self.kv_heads or self.room < 0:
            given = f"heads {self.heads}, kv_heads {self.kv_heads}, room {self.room}"
            raise OperatorError(f"{given}; accepted: a multiple of kv_heads, 0 or more")

    def head(self, query: TensorType, key: TensorType | None) -> int:
        """The size of a head. Raises `ShapeError`."""
        heads = self.heads if key is not None else self.heads + 2 * self.kv_heads
        if query.rank != 3 or not query.dims[2] or query.dims[2] % heads:
            raise ShapeError(f"input 'query' is {query}; accepted: [batch, sequence, a multiple of {heads}]")
        return query.dims[2] // heads

    def factor(self, size: int) -> float:
        """The factor of the products of queries and keys, for heads of this size."""
        return self.scale or 1 / math.sqrt(size)

    def infer(
        self, query: TensorType, key: TensorType | None, value: TensorType | None, *rest: TensorType | None
    ) -> tuple[TensorType, ...]:
        """The output, and the caches. Raises `ShapeError`."""
        past_key, past_value, lengths, cos, sin, ids, bias, sink = (*rest, *[None] * 5)[:8]
        size = self.head(query, key)
        batch, sequence, _ = query.dims
        rows = (batch, sequence, self.kv_heads * size)
        if (key is None) != (value is None) or (key is not None and value is not None and (key.dims, value.dims) != (rows, rows)):
            raise ShapeError(f"input 'key' is {key}, 'value' {value}; accepted: both {list(rows)}, or none")
        before = past_key.dims[2] if past_key is not None and past_key.rank == 4 else 0
        cache = (batch, self.kv_heads, before, size)
        if (past_key is None) != (past_value is None) or any(t is not None and t.dims != cache for t in (past_key, past_value)):
            raise ShapeError(f"input 'past_key' is {past_key}, 'past_value' {past_value}; accepted: both {list(cache)}, or none")
        if before > self.room or lengths is None or lengths.size != batch or (ids is not None and ids.dims != rows[:2]):
            given = f"input 'past_key' is {past_key}, 'seqlens_k' {lengths}, 'position_ids' {ids}"
            raise ShapeError(f"{given}; accepted: at most {self.room} keys, [{batch}], {list(rows[:2])}")
        pair = cos, sin
        if pair != (None, None) and (cos is None or sin is None or cos.rank != 2 or cos != sin or 2 * cos.dims[1] > size):
            raise ShapeError(f"input 'cos_cache' is {cos}, 'sin_cache' {sin}; accepted: both [positions, up to {size // 2}]")
        if bias is not None and (bias.rank != 4 or bias.dims[2] != sequence or (bias.dims[3] > self.room and not self.sliding)):
            raise ShapeError(f"input 'attention_bias' is {bias}; accepted: [.., .., {sequence}, total]")
        if sink is not None and sink.dims != (self.heads,):
            raise ShapeError(f"input 'head_sink' is {sink}; accepted: [{self.heads}]")
        caches = query.with_shape((batch, self.kv_heads, self.room, size))
        return query.with_shape((batch, sequence, self.heads * size)), caches, caches

    def reference(self, query: Array, key: Array | None, value: Array | None, *rest: Any) -> tuple[Array, Array, Array]:
        """Sample by sample, in float32."""
        past_key, past_value, lengths, cos, sin, ids, bias, sink = (*rest, *[None] * 5)[:8]
        size = self.head(TensorType.of(query), None if key is None else TensorType.of(key))
        q, k, v = self.split(query, key, value, size)
        batch, sequence = query.shape[:2]
        starts = self.starts(lengths, sequence)
        places = starts[:, None] + np.arange(sequence)
        if cos is not None:
            at = np.minimum(places, len(cos) - 1) if ids is None else ids
            q, k = (self._turned(x, cos, sin, at) for x in (q, k))
        keys, values = (np.zeros((batch, self.kv_heads, self.room, size), query.dtype) for _ in range(2))
        for cache, past in ((keys, past_key), (values, past_value)):
            if past is not None:
                cache[:, :, : past.shape[2]] = past
        y = np.zeros((batch, sequence, self.heads, size), query.dtype)
        for b, (start, count) in enumerate(zip(starts.tolist(), lengths.reshape(-1).tolist(), strict=True)):
            valid, held = (count + 1 - start if self.sliding else sequence), self.resident(start)
            every = [np.concatenate((cache[b, :, :held], new[b]), 1) for cache, new in ((keys, k), (values, v))]
            kept = self.resident(start + valid)
            for cache, rows in zip((keys, values), every, strict=True):
                cache[b, :, :kept] = rows[:, held + valid - kept : held + valid]
            added = None if bias is None else bias[b % len(bias), ..., start - held :]
            y[b] = self._attended(q[b], every[0], every[1], places[b] - (start - held), added, sink)
        return y.reshape(batch, sequence, self.heads * size), keys, values

    def on_host(self, *inputs: Array | None) -> tuple[Array, ...]:
        """As `reference`, by the kernel for the host. Operators whose types are data give it as theirs."""
        types = self.infer(*(None if array is None else TensorType.of(array) for array in inputs))  # type: ignore[arg-type]
        outputs = tuple(np.empty(t.dims, t.dtype.numpy) for t in types)
        InPlace().execute(self, HostConfig((), ()), inputs, outputs)
        return outputs

    def starts(self, lengths: Array, sequence: int) -> Array:
        """The position of the first query of each sample. Raises `OperatorError` for a length that the caches do not have.

        A prompt may be filled up behind its tokens, to more than `seqlens_k` has; what comes after one is always whole.
        """
        counts = [count + 1 for count in lengths.reshape(-1).tolist()]
        if min(counts, default=1) < 1 or (not self.sliding and max(sequence, *counts, 0) > self.room):
            raise OperatorError(
                f"input 'seqlens_k' is {lengths.reshape(-1).tolist()} for {sequence} queries; accepted: 0 to {self.room - 1}",
                hint=f"the caches 'past_key' and 'past_value' are full: they hold {self.room} keys; give longer ones",
            )
        return np.array([max(count - sequence, 0) for count in counts], np.int64)

    def resident(self, count: int) -> int:
        """How many of `count` keys a cache holds. A full `sliding` one goes on with the last ones, `window` of them."""
        spare = self.room - self.window + 1
        return count - spare * max(0, -(-(count - self.room) // spare)) if self.sliding else count

    def split(self, query: Array, key: Array | None, value: Array | None, size: int) -> list[Array]:
        """Queries, keys and values as [batch, heads, sequence, size]."""
        n, kv = self.heads * size, self.kv_heads * size
        if key is None or value is None:
            query, key, value = query[..., :n], query[..., n : n + kv], query[..., n + kv :]
        return [x.reshape(*x.shape[:2], x.shape[2] // size, size).transpose(0, 2, 1, 3) for x in (query, key, value)]

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Two products and a softmax of five operations a score, for caches that are full."""
        size = outputs[0].dims[2] // self.heads
        return outputs[0].size // max(1, size) * self.room * (4 * size + 5)

    def _turned(self, x: Array, cos: Array, sin: Array, ids: Array) -> Array:
        op = RotaryEmbedding(interleaved=self.interleaved, rotary_embedding_dim=2 * cos.shape[1])
        return np.asarray(op.reference(np.ascontiguousarray(x), cos, sin, ids.astype(np.int64))[0])

    def _attended(self, q: Array, keys: Array, values: Array, places: Array, bias: Array | None, sink: Array | None) -> Array:
        """One sample: q [heads, sequence, size], keys and values [kv heads, used, size] -> [sequence, heads, size]."""
        group = self.heads // self.kv_heads
        k, v = (np.repeat(x.astype(np.float32), group, axis=0) for x in (keys, values))
        scores = q.astype(np.float32) @ k.swapaxes(1, 2) * np.float32(self.factor(q.shape[2]))
        if self.softcap > 0:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if bias is not None:
            scores = scores + bias[..., : k.shape[1]].astype(np.float32)
        at = np.arange(k.shape[1])
        seen = at <= places[:, None]
        if self.window > 0:
            seen &= at > places[:, None] - self.window
        scores = np.where(seen, scores, -np.inf)
        if sink is not None:
            last = np.broadcast_to(sink.astype(np.float32)[:, None, None], (*scores.shape[:2], 1))
            scores = np.concatenate([scores, last], 2)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        y = (weights / weights.sum(2, keepdims=True))[..., : len(at)] @ v
        return np.asarray(y.transpose(1, 0, 2).astype(q.dtype))
