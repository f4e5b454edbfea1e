"""Cases of DecoderMaskedMultiHeadAttention, computed in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.decoder_masked_attention import DecoderMaskedMultiHeadAttention

Array = NDArray[Any]


def _attended(query: Array, keys: Array, values: Array, lost: Array | float = 0.0) -> Array:
    """[rows, 1, heads * size], of queries of that form and [rows, heads, length, size]."""
    rows, heads, _, size = keys.shape
    q = query.astype(np.float64).reshape(rows, heads, 1, size)
    scores = q @ keys.astype(np.float64).swapaxes(2, 3) / np.sqrt(size) + lost
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    y: Array = odds / odds.sum(-1, keepdims=True) @ values.astype(np.float64)
    return np.asarray(y.reshape(rows, 1, heads * size), np.float32)


def decoder_masked_multi_head_attention(rng: np.random.Generator) -> Iterator[Case]:
    """Caches that share a buffer, with and without beams; caches that become longer; another sequence."""
    rows, heads, size, past, room = 2, 2, 4, 3, 6
    query, key, value = (rng.standard_normal((rows, 1, heads * size)).astype(np.float32) for _ in range(3))
    caches = [np.zeros((rows, heads, room, size), np.float32) for _ in range(2)]
    after = []
    for cache, new in zip(caches, (key, value), strict=True):
        cache[:, :, :past] = rng.standard_normal((rows, heads, past, size))
        after.append(cache.copy())
        after[-1][:, :, past] = new.reshape(rows, heads, size)
    length = np.array([past], np.int32)
    shared = DecoderMaskedMultiHeadAttention(num_heads=heads, past_present_share_buffer=True)
    mask = np.array([[1, 0, 1, 1], [1, 1, 1, 1]], np.int32)
    lost = np.where(mask[:, None, None] > 0, 0.0, -10000.0)
    used = [one[:, :, : past + 1] for one in after]
    given = (query, key, value, mask, None, *caches, length)
    yield Case("shared_buffer", shared, given, (_attended(query, used[0], used[1], lost), *after))
    beams = np.array([[[0, 1, 1, 9, 9, 9], [0, 0, 1, 9, 9, 9]]], np.int32)
    read = [one.copy() for one in used]
    for one, cache in zip(read, caches, strict=True):
        for row in range(rows):
            for place in range(past):
                one[row, :, place] = cache[beams[0, row, place], :, place]
    given = (query, key, value, None, None, *caches, length, np.array([2], np.int32), beams)
    yield Case("beams", shared, given, (_attended(query, read[0], read[1]), *after))
    longer = DecoderMaskedMultiHeadAttention(num_heads=heads)
    short = [cache[:, :, :past] for cache in caches]
    yield Case("longer", longer, (query, key, value, None, None, *short), (_attended(query, used[0], used[1]), *used))
    yield Case("another_sequence", shared, (query, *used), (_attended(query, used[0], used[1]),))
