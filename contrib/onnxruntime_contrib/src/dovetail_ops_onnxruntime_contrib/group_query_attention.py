"""GroupQueryAttention of ONNX Runtime: attention with caches, as its generators of text run it."""

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape
from dovetail.op import DType, KernelSource, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._cached_attention import CachedAttention

__all__ = ["GroupQueryAttention"]

Array = NDArray[Any]

_QUANTIZED = ("kv_cache_bit_width", "qk_output", "sliding_window_cache", "smooth_softmax")


class GroupQueryAttention(MicrosoftOperator):
    """Causal attention of query [batch, sequence, num_heads * H] to keys and values of `kv_num_heads` heads and a cache of them.

    Without key and value the query holds all three. `past_key` and `past_value` are [batch, kv heads, length, H]; of sample b
    `seqlens_k[b] + 1` keys count in all, the new ones being the last of them. The caches that come out have the length of those
    that came in, or `total_sequence_length` where that is more; what follows the keys of a sample in it is as it was, or 0.
    `do_rotary` turns queries and new keys (RotaryEmbedding). `local_window_size` lets a query see so many keys, its own included.
    """

    inputs = (
        "query: T",
        "key?: T",
        "value?: T",
        "past_key?: T",
        "past_value?: T",
        "seqlens_k: M",
        "total_sequence_length: M",
        "cos_cache?: T",
        "sin_cache?: T",
        "position_ids?: int64",
        "attention_bias?: T",
    )
    outputs = ("output: T", "present_key?: T", "present_value?: T")
    types = {"T": FLOAT_TYPES, "M": frozenset({DType.INT32})}
    kv_num_heads: int
    num_heads: int
    causal: int = 1
    do_rotary: bool = False
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: bool = False
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = 0
    softcap: float = 0.0
    v_quant_type: str = "NONE"
    kernels: ClassVar[tuple[KernelSource, ...]] = (CachedAttention(),)

    def __post_init__(self) -> None:
        used = [name for name in _QUANTIZED if getattr(self, name) > 0]
        used += [name for name in ("k_quant_type", "v_quant_type") if getattr(self, name) != "NONE"]
        if used or not self.causal:
            raise OperatorError(f"attribute {(used or ['causal'])[0]!r} is set otherwise; accepted: its default")
        if self.kv_num_heads < 1 or self.num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise OperatorError(
                f"attributes 'num_heads' {self.num_heads}, 'kv_num_heads' {self.kv_num_heads}; accepted: a multiple"
            )

    def head(self, query: TensorType, key: TensorType | None) -> int:
        """The size of a head."""
        heads = self.num_heads if key is not None else self.num_heads + 2 * self.kv_num_heads
        if query.rank != 3 or not query.dims[2] or query.dims[2] % heads:
            raise ShapeError(f"input 'query' is {query}; accepted: [batch, sequence, a multiple of {heads}]")
        return query.dims[2] // heads

    def infer(self, query: TensorType, key: TensorType | None, value: TensorType | None, *rest: TensorType | None) -> Any:
        """The output, and the caches. Raises `DataDependentShape` while their length is not known."""
        past_key, past_value, lengths, total, cos, sin, ids, bias = rest
        size = self.head(query, key)
        batch, sequence, _ = query.dims
        rows = (batch, sequence, self.kv_num_heads * size)
        if (key is None) != (value is None) or (key is not None and value is not None and (key.dims, value.dims) != (rows, rows)):
            raise ShapeError(f"input 'key' is {key}, 'value' {value}; accepted: both {list(rows)}, or none")
        before = past_key.dims[2] if past_key is not None and past_key.rank == 4 else 0
        cache = (batch, self.kv_num_heads, before, size)
        if (past_key is None) != (past_value is None) or any(t is not None and t.dims != cache for t in (past_key, past_value)):
            raise ShapeError(f"input 'past_key' is {past_key}, 'past_value' {past_value}; accepted: both {list(cache)}, or none")
        if self.do_rotary and (cos is None or sin is None or cos.rank != 2 or cos.dims != sin.dims or 2 * cos.dims[1] > size):
            raise ShapeError(
                f"input 'cos_cache' is {cos}, 'sin_cache' {sin}; accepted: [positions, up to {size // 2}], for do_rotary"
            )
        if (
            lengths is None
            or lengths.size != batch
            or total is None
            or total.size != 1
            or (ids is not None and ids.dims != rows[:2])
        ):
            raise ShapeError(
                f"input 'seqlens_k' is {lengths}, 'total_sequence_length' {total}, 'position_ids' {ids}; "
                f"accepted: [{batch}], a scalar, {list(rows[:2])}"
            )
        if total.value is None:
            raise DataDependentShape(
                "the length of the caches is that of input 'total_sequence_length', which is not known while planning"
            )
        length = max(before, int(total.value.reshape(())))
        if bias is not None and (bias.rank != 4 or bias.dims[2] != sequence or bias.dims[3] > length):
            raise ShapeError(f"input 'attention_bias' is {bias}; accepted: [.., .., {sequence}, total]")
        caches = query.with_shape((batch, self.kv_num_heads, length, size))
        return query.with_shape((batch, sequence, self.num_heads * size)), caches, caches

    def reference(self, query: Array, key: Array | None, value: Array | None, *rest: Any) -> tuple[Array, Array, Array]:
        """Sample by sample, in float32."""
        past_key, past_value, lengths, total, cos, sin, ids, bias = (*rest, *[None] * 4)[:8]
        size = self.head(TensorType.of(query), None if key is None else TensorType.of(key))
        q, k, v = self.heads(query, key, value, size)
        batch, sequence = query.shape[:2]
        before = 0 if past_key is None else past_key.shape[2]
        room = max(before, int(total.reshape(())))
        starts = self.starts(lengths, sequence, room)
        places = starts[:, None] + np.arange(sequence)
        if self.do_rotary:
            at = np.minimum(places, len(cos) - 1) if ids is None else ids
            q, k = (self._turned(x, cos, sin, at) for x in (q, k))
        keys, values = (np.zeros((batch, self.kv_num_heads, room, size), query.dtype) for _ in range(2))
        for cache, past, new in ((keys, past_key, k), (values, past_value, v)):
            if past is not None:
                cache[:, :, :before] = past
            for b, start in enumerate(starts):
                cache[b, :, start : start + sequence] = new[b]
        y = np.zeros((batch, sequence, self.num_heads, size), query.dtype)
        for b in range(batch):
            used = min(int(starts[b]) + sequence, room)
            y[b] = self._attended(
                q[b], keys[b, :, :used], values[b, :, :used], places[b], None if bias is None else bias[b % len(bias)]
            )
        return y.reshape(batch, sequence, self.num_heads * size), keys, values

    def starts(self, lengths: Array, sequence: int, room: int) -> Array:
        """The position of the first query of each sample. Raises `OperatorError` for a length that the caches do not have.

        A prompt may be filled up behind its tokens, to more than `seqlens_k` has; what comes after one is always whole.
        """
        counts = lengths.reshape(-1).astype(np.int64) + 1
        if np.any((counts < 1) | (counts > room)) or sequence > room:
            raise OperatorError(
                f"input 'seqlens_k' is {lengths.reshape(-1).tolist()} for {sequence} queries; accepted: 0 to {room - 1}",
                hint="the caches are full: give longer ones",
            )
        return np.asarray(np.maximum(counts - sequence, 0))

    def heads(self, query: Array, key: Array | None, value: Array | None, size: int) -> list[Array]:
        """Queries, keys and values as [batch, heads, sequence, size]."""
        n, kv = self.num_heads * size, self.kv_num_heads * size
        if key is None or value is None:
            query, key, value = query[..., :n], query[..., n : n + kv], query[..., n + kv :]
        return [x.reshape(*x.shape[:2], x.shape[2] // size, size).transpose(0, 2, 1, 3) for x in (query, key, value)]

    def _turned(self, x: Array, cos: Array, sin: Array, ids: Array) -> Array:
        op = RotaryEmbedding(interleaved=self.rotary_interleaved, rotary_embedding_dim=2 * cos.shape[1])
        return np.asarray(op.reference(np.ascontiguousarray(x), cos, sin, ids.astype(np.int64))[0])

    def _attended(self, q: Array, keys: Array, values: Array, places: Array, bias: Array | None) -> Array:
        """One sample: q [heads, sequence, size], keys and values [kv heads, used, size] -> [sequence, heads, size]."""
        group = self.num_heads // self.kv_num_heads
        k, v = (np.repeat(x.astype(np.float32), group, axis=0) for x in (keys, values))
        scores = q.astype(np.float32) @ k.swapaxes(1, 2) * np.float32(self.scale or 1 / math.sqrt(q.shape[2]))
        if self.softcap > 0:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if bias is not None:
            scores = scores + bias[..., : k.shape[1]].astype(np.float32)
        at = np.arange(k.shape[1])
        seen = at <= places[:, None]
        if self.local_window_size > 0:
            seen &= at > places[:, None] - self.local_window_size
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        y = weights / weights.sum(2, keepdims=True) @ v
        return np.asarray(y.transpose(1, 0, 2).astype(q.dtype))
