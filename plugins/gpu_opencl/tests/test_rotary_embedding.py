"""RotaryEmbedding against complex numbers in float64."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InferError
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding


@pytest.mark.exhaustive(0.25)  # each compiles programs
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("by_ids", [False, True])
def test_rotary_embedding(device: Any, bench: Any, rng: Any, interleaved: bool, rank: int, by_ids: bool) -> None:
    batch, sequence, heads, size, pairs = 2, 5, 3, 14, 5
    x = rng.standard_normal((batch, heads, sequence, size)).astype(np.float32)
    ids = rng.integers(-9, 9, (batch, sequence))
    angles = rng.uniform(-3, 3, (9, pairs) if by_ids else (batch, sequence, pairs))
    halves = (slice(0, 10, 2), slice(1, 10, 2)) if interleaved else (slice(0, 5), slice(5, 10))
    turned = (x[..., halves[0]] + 1j * x[..., halves[1]]) * np.exp(1j * (angles[ids] if by_ids else angles))[:, None]
    want = x.astype(np.float64)
    want[..., halves[0]], want[..., halves[1]] = turned.real, turned.imag
    if rank == 3:
        x, want = (a.swapaxes(1, 2).reshape(batch, sequence, -1).copy() for a in (x, want))
    op = RotaryEmbedding(interleaved=interleaved, num_heads=heads, rotary_embedding_dim=2 * pairs)
    feeds = [x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), *([ids] if by_ids else [])]
    graph, _ = bench.single(op, feeds)
    assert bench.accepted(device, graph, graph.nodes[0]) == ["rotary_embedding"]
    np.testing.assert_allclose(bench.run(device, graph, feeds)[0], want, rtol=1e-5, atol=1e-6)


def test_a_position_out_of_range(device: Any, bench: Any) -> None:
    x, table = np.ones((1, 1, 1, 2), np.float32), np.ones((9, 1), np.float32)
    feeds = [x, table, table, np.array([[9]])]
    graph, _ = bench.single(RotaryEmbedding(), feeds)
    with pytest.raises(InferError, match=r"RotaryEmbedding.*out of range; accepted: 0 to 8"):
        bench.run(device, graph, feeds)
