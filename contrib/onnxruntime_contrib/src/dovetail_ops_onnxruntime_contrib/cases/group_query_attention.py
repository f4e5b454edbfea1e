"""Cases of GroupQueryAttention: head by head in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.cases.attention import attended, heads_of
from dovetail_ops_onnxruntime_contrib.group_query_attention import GroupQueryAttention


def group_query_attention(rng: np.random.Generator) -> Iterator[Case]:
    """A prompt, and a token after samples of different lengths in caches with room."""
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 16), (2, 3, 8), (2, 3, 8)))
    op = GroupQueryAttention(num_heads=4, kv_num_heads=2)
    keys, values = heads_of(k, 2), heads_of(v, 2)
    later = np.where(np.tri(3) > 0, 0, -np.inf)
    want = attended(heads_of(q, 4), keys.repeat(2, 1), values.repeat(2, 1), later)
    end = (np.array([2, 2], np.int32), np.array([3], np.int32))
    yield Case("prompt", op, (q, k, v, None, None, *end), (want, keys, values), constants=(6,), rtol=1e-4, atol=1e-5)
    packed = np.concatenate((q, k, v), 2)
    yield Case("packed", op, (packed, None, None, None, None, *end), (want,), constants=(6,), rtol=1e-4, atol=1e-5)
    olds = [np.zeros((2, 2, 6, 4), np.float32) for _ in range(2)]
    counts = (4, 2)
    for b, count in enumerate(counts):
        for old in olds:
            old[b, :, :count] = rng.standard_normal((2, count, 4))
    news = [old.copy() for old in olds]
    rows = []
    for b, count in enumerate(counts):
        for new, side in zip(news, (keys, values), strict=True):
            new[b, :, count] = side[b, :, 0]
        seen = [new[b : b + 1, :, : count + 1].repeat(2, 1) for new in news]
        rows.append(attended(heads_of(q[b : b + 1, :1], 4), *seen))
    inputs = (q[:, :1], k[:, :1], v[:, :1], *olds, np.array(counts, np.int32), np.array([5], np.int32))
    yield Case("token", op, inputs, (np.concatenate(rows), *news), constants=(6,), rtol=1e-4, atol=1e-5)
