"""Cases of Attention and MultiHeadAttention: head by head in float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.attention import Attention, MultiHeadAttention

Array = NDArray[Any]


def heads_of(x: Array, heads: int) -> Array:
    """[batch, length, hidden] -> [batch, heads, length, head size]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attended(q: Array, k: Array, v: Array, lost: Array | float = 0.0) -> Array:
    """Softmax of the scaled products plus `lost`, times v; all by heads, the result as [batch, length, hidden]."""
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / math.sqrt(q.shape[3]) + lost
    weights = np.exp(scores - scores.max(3, keepdims=True))
    y = weights / weights.sum(3, keepdims=True) @ v.astype(np.float64)
    return np.asarray(y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1).astype(np.float32))


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def attention(rng: np.random.Generator) -> Iterator[Case]:
    """With lengths; causal, with a past. Few, because devices compile kernels for each."""
    x, w, b = _floats(rng, 2, 5, 8), _floats(rng, 8, 12) / 2, _floats(rng, 12)
    sides = [heads_of(part, 2) for part in np.split(x @ w + b, 3, axis=2)]
    near = 1e-4
    lengths = np.array([5, 3], np.int32)
    lost = np.where(np.arange(5) < lengths[:, None], 0, -10000.0)[:, None, None]
    yield Case(
        "lengths",
        Attention(num_heads=2),
        (x, w, b, lengths),
        (attended(sides[0], sides[1], sides[2], lost),),
        rtol=near,
        atol=near,
    )
    later = np.where(np.tri(5, 8, 3) > 0, 0, -np.inf)
    past = _floats(rng, 2, 2, 2, 3, 2)
    full = [np.concatenate(pair, 2) for pair in zip(past, sides[1:], strict=True)]
    op, inputs = Attention(num_heads=2, unidirectional=True), (x, w, b, None, past)
    yield Case("past", op, inputs, (attended(sides[0], full[0], full[1], later), np.stack(full)), rtol=near, atol=near)


def multi_head_attention(rng: np.random.Generator) -> Iterator[Case]:
    """Cross-attention with a bias and a mask, a past."""
    q, k, v = _floats(rng, 2, 3, 6), _floats(rng, 2, 5, 6), _floats(rng, 2, 5, 8)
    b, mask = _floats(rng, 20), np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], np.int32)
    op = MultiHeadAttention(num_heads=2)
    biased = [heads_of(x + part, 2) for x, part in zip((q, k, v), np.split(b, (6, 12)), strict=True)]
    want = attended(biased[0], biased[1], biased[2], np.where(mask > 0, 0, -10000.0)[:, None, None])
    yield Case("cross", op, (q, k, v, b, mask), (want, *biased[1:]), rtol=1e-4, atol=1e-4)
    heads = [heads_of(x, 2) for x in (k, v)]
    want = attended(biased[0], *heads)
    yield Case("keys_of_four_axes", op, (q, *heads, b), (want, *heads), rtol=1e-4, atol=1e-4)
    old = [_floats(rng, 2, 2, 4, 3), _floats(rng, 2, 2, 4, 4)]
    new = [heads_of(x, 2) for x in (q, k, v)]
    full = [np.concatenate(pair, 2) for pair in zip(old, new[1:], strict=True)]
    inputs = (q, k, v, None, None, None, *old)
    yield Case("past", op, inputs, (attended(new[0], *full), *full), rtol=1e-4, atol=1e-4)
