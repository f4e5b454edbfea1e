"""The kernel for the host of Attention with lengths: only keys that count are read, however long the caches are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, DType, HostConfig, HostKernel, TensorType

if TYPE_CHECKING:
    from dovetail_ops_onnx.attention import Attention_23

__all__ = ["UsedKeys"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]

_MASK, _LENGTHS = 3, 6


class UsedKeys(HostKernel):
    """Sample by sample, in float32, or float64 where the inputs are."""

    def configurations(self, op: "Attention_23", inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        others = any(t is not None for t in outputs[1:]) or not outputs or outputs[0] is None
        mixed = len({t.dtype for t in inputs[:3] if t is not None}) > 1
        precise = op.softmax_precision in (None, DType.FLOAT32, *(t.dtype for t in inputs[:1] if t is not None))
        mask, key = inputs[_MASK], inputs[1]
        total = 0 if key is None or not key.rank else key.dims[-2] if key.rank == 4 else key.dims[1]
        short = mask is not None and (not mask.rank or mask.dims[-1] != total or mask.dtype not in (*FLOATS, DType.BOOL))
        if len(inputs) <= _LENGTHS or inputs[_LENGTHS] is None or others or mixed or not precise or short:
            return ()
        return (HostConfig.uniform(inputs, outputs),)

    def execute(
        self, op: "Attention_23", config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> None:
        q, k, v, mask, *_, lengths = inputs[: _LENGTHS + 1]
        dst = outputs[0]
        assert q is not None
        assert k is not None
        assert v is not None
        assert lengths is not None
        assert dst is not None
        s = op.sizes(*(TensorType.of(x) for x in (q, k, v)))
        q, k, v = (_heads(x, count) for x, count in ((q, s.heads), (k, s.kv_heads), (v, s.kv_heads)))
        y = _heads(dst, s.heads)
        bias = None if mask is None else np.broadcast_to(mask, s.scores)
        for b, count in enumerate(lengths.tolist()):
            _attend(op, q[b], k[b], v[b], count, None if bias is None else bias[b], y[b], op.factor(s))


def _heads(x: Array, count: int) -> Array:
    """[batch, heads, length, size] as a view; [batch, length, heads * size] is split."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, x.shape[2] // count).swapaxes(1, 2)


def _attend(op: "Attention_23", q: Array, k: Array, v: Array, count: int, mask: Array | None, dst: Array, factor: float) -> None:
    """One sample: q and dst [heads, queries, size], keys and values [kv heads, total, size]."""
    heads, queries, size = q.shape
    kv, total, _ = k.shape
    rows = heads // kv * queries
    places, (left, right) = np.arange(queries) + count - queries, op.window
    right = 0 if op.is_causal else right
    # No query sees keys before the window of the first, nor behind that of the last.
    end = max(0, min(count, total, total if right < 0 or not queries else int(places[-1]) + right + 1))
    begin = min(end, max(0, int(places[0]) - left)) if left >= 0 and queries else 0
    wide: type[np.floating[Any]] = np.float64 if q.dtype == np.float64 else np.float32
    part: Array = np.multiply(q, factor, dtype=wide, casting="unsafe").reshape(kv, rows, size)
    scores = (part @ k[:, begin:end].astype(wide, copy=False).swapaxes(1, 2)).reshape(heads, queries, end - begin)
    if op.softcap > 0:
        scores = wide(op.softcap) * np.tanh(scores / wide(op.softcap))
    if mask is not None:
        seen = mask[..., begin:end]
        scores = np.where(seen, scores, -np.inf) if seen.dtype == bool else scores + seen.astype(wide)
    distance = places[:, None] - np.arange(begin, end)
    hidden = np.zeros(distance.shape, bool)
    hidden |= distance > left if left >= 0 else False
    hidden |= distance < -right if right >= 0 else False
    np.copyto(scores, wide(-np.inf), where=hidden)
    top = scores.max(2, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, wide(0), top))
    y = (weights.reshape(kv, rows, end - begin) @ v[:, begin:end].astype(wide, copy=False)).reshape(heads, queries, v.shape[2])
    sums = weights.sum(2, keepdims=True)
    dst[...] = np.where(sums == 0, wide(0), y / np.where(sums == 0, wide(1), sums))
