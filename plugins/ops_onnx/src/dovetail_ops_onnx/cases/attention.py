"""Cases of Attention: query by query and key by key in float64."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.attention import Attention, Attention_23, Attention_24

Array = NDArray[Any]
Seen = Callable[[int, int, int], bool]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both forms, shared heads, masks of each sort, caches, causal, cap, window, lengths, modes, float16, sizes of 0."""

    def some(*dims: int, dtype: str = "float32") -> Array:
        return rng.standard_normal(dims).astype(dtype)

    q, k, v = some(2, 4, 3, 8), some(2, 4, 5, 8), some(2, 4, 5, 6)
    yield Case("plain", Attention(), (q, k, v), (_by_hand(q, k, v),))
    yield Case("scaled", Attention(scale=0.3), (q, k, v), (_by_hand(q, k, v, scale=0.3),))
    yield Case("negative_scale", Attention(scale=-0.2), (q, k, v), (_by_hand(q, k, v, scale=-0.2),))
    for name, mask in (("row", some(5)), ("batch", some(2, 1, 1, 5)), ("head", some(4, 3, 5)), ("full", some(2, 4, 3, 5))):
        yield Case(f"mask_{name}", Attention(), (q, k, v, mask), (_by_hand(q, k, v, mask),))
    seen = rng.random((2, 1, 3, 5)) > 0.4
    seen[0, 0, 1] = False
    seen[..., 0] |= np.array([[[True, False, True]], [[True, True, True]]])
    yield Case("bool_mask", Attention_23(), (q, k, v, seen), (_by_hand(q, k, v, np.where(seen, 0, -np.inf)),))
    short = some(3, 2)
    filled = np.concatenate([short, np.full((3, 3), -np.inf)], 1)
    yield Case("short_mask", Attention(), (q, k, v, short), (_by_hand(q, k, v, filled),))
    yield Case("causal", Attention(is_causal=True), (q, k, v), (_by_hand(q, k, v, seen=lambda b, i, j: j <= i),))
    yield Case("softcap", Attention(softcap=2.0), (q, k, v), (_by_hand(q, k, v, cap=2.0),))
    window = Attention(left_window_size=1, right_window_size=0)
    yield Case("window", window, (q, k, v), (_by_hand(q, k, v, seen=lambda b, i, j: i - 1 <= j <= i),))
    shared = (some(2, 2, 5, 8), some(2, 2, 5, 6))
    yield Case("shared_heads", Attention(), (q, *shared), (_by_hand(q, *(np.repeat(a, 2, 1) for a in shared)),))
    yield from _packed(some)
    past = (some(2, 4, 2, 8), some(2, 4, 2, 6))
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    want = (_by_hand(q, keys, values, seen=lambda b, i, j: j <= i + 2), keys, values)
    yield Case("past", Attention(is_causal=True), (q, k, v, None, *past), want)
    lengths = np.array([4, 5])
    want_lengths = _by_hand(q, k, v, seen=lambda b, i, j: j < lengths[b] and j <= i + lengths[b] - 3)
    yield Case("lengths", Attention_24(is_causal=True), (q, k, v, None, None, None, lengths), (want_lengths,))
    mask, present = some(3, 5), (k, v)
    narrow = _by_hand(q, k, v, mask, seen=lambda b, i, j: j < lengths[b] and 0 <= i + lengths[b] - 3 - j <= 2)
    near = Attention(left_window_size=2, right_window_size=0)
    yield Case("lengths_window", near, (q, k, v, mask, None, None, lengths), (narrow,))
    scores = np.einsum("bhid,bhjd->bhij", q.astype(float), k.astype(float)) / math.sqrt(8)
    for mode, kept in enumerate((scores, np.tanh(scores), np.tanh(scores) + mask)):
        expected = (_by_hand(q, k, v, mask, cap=1.0), *present, kept.astype(np.float32))
        yield Case(f"scores_mode_{mode}", Attention(softcap=1.0, qk_matmul_output_mode=mode), (q, k, v, mask), expected)
    half = tuple(a.astype(np.float16) for a in (q, k, v))
    yield Case("float16", Attention(), half, (_by_hand(*half),), rtol=4e-3, atol=4e-3)
    yield Case("batch_0", Attention(), (q[:0], k[:0], v[:0]), (np.zeros((0, 4, 3, 6), np.float32),))
    yield Case("no_queries", Attention(), (q[:, :, :0], k, v), (np.zeros((2, 4, 0, 6), np.float32),))


def _packed(some: Callable[..., Array]) -> Iterator[Case]:
    """[batch, length, heads * head size], with and without shared heads and a mask."""
    q, k, v, mask = some(2, 7, 12), some(2, 5, 12), some(2, 5, 15), some(2, 1, 1, 5)
    for name, heads, kv_heads, used in (("packed", 3, 3, None), ("packed_mask", 3, 3, mask), ("packed_shared", 6, 3, mask)):
        rows = some(2, 7, 24) if heads == 6 else q
        keys, values = (np.repeat(_heads(a, kv_heads), heads // kv_heads, 1) for a in (k, v))
        y = _by_hand(_heads(rows, heads), keys, values, used).transpose(0, 2, 1, 3).reshape(2, 7, heads * 5)
        inputs = (rows, k, v) if used is None else (rows, k, v, used)
        yield Case(name, Attention(q_num_heads=heads, kv_num_heads=kv_heads), inputs, (y,))
    past = (some(2, 3, 4, 4), some(2, 3, 4, 5))
    caches = [np.concatenate([old, _heads(new, 3)], 2) for old, new in zip(past, (k, v), strict=True)]
    whole = _by_hand(_heads(rows, 6), *(np.repeat(cache, 2, 1) for cache in caches), cap=3.0)
    want = (whole.transpose(0, 2, 1, 3).reshape(2, 7, 30), *caches)
    yield Case("packed_past", Attention(q_num_heads=6, kv_num_heads=3, softcap=3.0), (rows, k, v, None, *past), want)


def _heads(x: Array, count: int) -> Array:
    batch, length, hidden = x.shape
    return x.reshape(batch, length, count, hidden // count).transpose(0, 2, 1, 3)


def _by_hand(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float = 0.0, cap: float = 0.0, seen: Seen | None = None
) -> Array:
    """The weighted means of the values in the type of q; zeros for a query that sees no key."""
    y = np.zeros((*q.shape[:3], v.shape[3]))
    bias = np.zeros((*q.shape[:3], k.shape[2])) + (0 if mask is None else mask)
    factor = scale or 1 / math.sqrt(q.shape[3])
    for b, h, i in np.ndindex(*q.shape[:3]):
        total, weighted = 0.0, np.zeros(v.shape[3])
        for j in range(k.shape[2]):
            score = factor * float(np.dot(q[b, h, i].astype(float), k[b, h, j].astype(float)))
            score = (cap * math.tanh(score / cap) if cap else score) + bias[b, h, i, j]
            weight = math.exp(score) if seen is None or seen(b, i, j) else 0.0
            total, weighted = total + weight, weighted + weight * v[b, h, j].astype(float)
        y[b, h, i] = weighted / total if total else 0
    return y.astype(q.dtype)
