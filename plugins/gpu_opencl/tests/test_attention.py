"""The one-kernel attention against float64, at lengths round its blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def attend(q: Any, k: Any, v: Any, mask: Any, cap: float, causal: bool) -> NDArray[np.float64]:
    """[B, H, S, D] in float64; `mask` is added; rows that see nothing are zeros."""
    share = q.shape[1] // k.shape[1]
    q, k, v = (a.astype(np.float64) for a in (q, k.repeat(share, 1), v.repeat(share, 1)))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = (cap * np.tanh(scores / cap) if cap else scores) + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    result: NDArray[np.float64] = weights @ v / np.where(total == 0, 1, total)
    return result


SIZES = [  # batch, heads, key-value heads, queries, keys, head, value head, form, mask, cap, causal
    (1, 1, 1, 1, 1, 1, 1, 4, "none", 0.0, False),
    (2, 2, 2, 17, 31, 8, 8, 3, "row", 0.0, False),
    (1, 4, 2, 33, 65, 12, 33, 4, "bool", 0.0, False),
    (2, 3, 1, 15, 129, 32, 32, 3, "full", 1.5, False),
    (1, 2, 2, 67, 67, 7, 5, 4, "none", 0.0, True),
]


@pytest.mark.parametrize("sizes", SIZES)
def test_attention(sizes: tuple[Any, ...], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    batch, heads, kv_heads, queries, keys, head, v_head, rank, kind, cap, causal = sizes

    def floats(*dims: int) -> Floats:
        return rng.standard_normal(dims).astype(np.float32)

    q, k, v = floats(batch, heads, queries, head), floats(batch, kv_heads, keys, head), floats(batch, kv_heads, keys, v_head)
    masks = {
        "none": None,
        "row": floats(keys),
        "full": floats(batch, heads, queries, keys),
        "bool": rng.random((queries, keys)) > 0.5,
    }
    mask = masks[kind]
    if kind == "bool":
        mask[1] = False
    added = 0.0 if mask is None else np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
    expected = attend(q, k, v, added, cap, causal)
    if rank == 3:
        q, k, v = (np.ascontiguousarray(a.swapaxes(1, 2)).reshape(batch, a.shape[2], -1) for a in (q, k, v))
        expected = expected.swapaxes(1, 2).reshape(batch, queries, -1)
    op = bench.op("Attention", softcap=cap, is_causal=causal, q_num_heads=heads, kv_num_heads=kv_heads)
    device = kind_device("GPU")
    device.forced = "attention"
    graph, feeds = bench.single(op, [q, k, v, mask])
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * max(1.0, float(np.abs(expected).max())))


def test_nan_stays_in_its_row(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    q, k, v = (rng.standard_normal((1, 1, 5, 4)).astype(np.float32) for _ in range(3))
    q[0, 0, 3, 0] = np.nan
    device = kind_device("GPU")
    device.forced = "attention"
    graph, feeds = bench.single(bench.op("Attention"), [q, k, v])
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert np.isnan(got[0, 0, 3]).all()
    assert not np.isnan(np.delete(got, 3, 2)).any()
