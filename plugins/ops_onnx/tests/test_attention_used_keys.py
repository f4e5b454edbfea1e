"""The kernel for the host of Attention with lengths, against float64, query by query."""

from typing import Any

import numpy as np
import pytest

from dovetail.op import HostConfig, TensorType
from dovetail_ops_onnx.attention import Attention

HEADS, KV, SIZE, V_SIZE, TOTAL = 6, 2, 8, 5, 40


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"is_causal": True},
        {"is_causal": True, "left_window_size": 3},
        {"left_window_size": 4, "right_window_size": 1, "softcap": 2.0},
    ],
    ids=str,
)
def test_used_keys(rng: np.random.Generator, queries: int, rank: int, mask: str, how: dict[str, Any]) -> None:
    lengths = np.array([40, 17, 3, 0, 55])
    q = rng.standard_normal((5, HEADS, queries, SIZE)).astype(np.float32)
    k, v = (rng.standard_normal((5, KV, TOTAL, n)).astype(np.float32) for n in (SIZE, V_SIZE))
    masks = {"none": None, "bool": rng.random((queries, TOTAL)) > 0.4, "float": rng.standard_normal((5, 1, queries, TOTAL))}
    added = masks[mask] if mask != "float" else masks[mask].astype(np.float32)  # type: ignore[union-attr]  # it is there
    bias = np.zeros((1, TOTAL)) if added is None else np.where(added, 0, -np.inf) if added.dtype == bool else added
    bias = np.broadcast_to(bias, (5, HEADS, queries, TOTAL))
    op = Attention(q_num_heads=HEADS, kv_num_heads=KV, **how)
    want = np.zeros((5, HEADS, queries, V_SIZE))
    for b, h, i in np.ndindex(5, HEADS, queries):
        place = lengths[b] - queries + i
        seen = [
            j
            for j in range(min(TOTAL, lengths[b]))
            if (j <= place or not op.is_causal)
            and (op.left_window_size < 0 or place - j <= op.left_window_size)
            and (op.right_window_size < 0 or j - place <= op.right_window_size)
            and bias[b, h, i, j] > -np.inf
        ]
        if seen:
            scores = k[b, h // 3, seen].astype(np.float64) @ q[b, h, i] / np.sqrt(SIZE)
            scores = 2 * np.tanh(scores / 2) if op.softcap else scores
            weights = np.exp(scores + bias[b, h, i, seen])
            want[b, h, i] = weights / weights.sum() @ v[b, h // 3, seen]
    if rank == 3:
        q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)).reshape(5, x.shape[2], -1) for x in (q, k, v))
        want = want.swapaxes(1, 2).reshape(5, queries, -1)
    inputs = [q, k, v, added, None, None, lengths]
    types = [None if x is None else TensorType.of(x) for x in inputs]
    (kernel,) = op.kernels
    dst = np.full(want.shape, np.nan, np.float32)
    assert kernel.configurations(op, types, [TensorType.of(dst), None, None, None])  # type: ignore[attr-defined]  # of the host
    kernel.execute(op, HostConfig((), ()), inputs, [dst])  # type: ignore[attr-defined]
    np.testing.assert_allclose(dst, want, rtol=1e-5, atol=1e-5)
