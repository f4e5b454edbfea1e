"""Attention of the standard over caches that a request keeps: TensorScatter writes, `nonpad_kv_seqlen` limits what is read."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_ops_onnx.attention import Attention_24
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tensor_scatter import TensorScatter

ROOM, SIZE = 500, 4


def _decoder() -> dovetail.Model:
    g = dovetail.GraphBuilder()
    sides = [g.input(name, "float32", (2, 2, "sequence", SIZE)) for name in ("q", "k", "v")]
    pasts = [g.input(f"past.{name}", "float32", (2, 2, ROOM, SIZE)) for name in ("k", "v")]
    lengths, count = g.input("lengths", "int64", (2,)), g.input("count", "int64", (1,))
    starts = g.node(Sub(), lengths, count)
    caches = [
        g.node(TensorScatter(axis=2), past, new, starts, outputs=[f"present.{name}"])
        for past, new, name in zip(pasts, sides[1:], "kv", strict=True)
    ]
    g.node(Attention_24(is_causal=True), sides[0], *caches, "", "", "", lengths, outputs=["y"])
    return g.model(["y", "present.k", "present.v"])


def _attended(q: Any, k: Any, v: Any) -> Any:
    """The last query of one head, in float64."""
    scores = k.astype(np.float64) @ q / np.sqrt(SIZE)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ v


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_texts_of_two_lengths(rng: np.random.Generator, device: str) -> None:
    q, k, v = (rng.standard_normal((2, 2, 9, SIZE)).astype(np.float32) for _ in range(3))
    with dovetail.Core().compile_model(_decoder(), device, {"STATE": "past.*:present.*"}) as compiled:
        request = compiled.create_infer_request()
        taken = np.array([0, 2])  # the second text begins at its third token
        for first, count in ((0, 4), (4, 1), (5, 1), (6, 1)):
            rows = [x[:, :, first : first + count] for x in (q, k, v)]
            lengths = taken + first + count
            found = request.infer(dict(zip("qkv", rows, strict=True)) | {"lengths": lengths, "count": [count]})["y"]
            for b, h in np.ndindex(2, 2):
                # What the second text has in its first two rows are zeros.
                keys, values = (np.concatenate((np.zeros((taken[b], SIZE)), x[b, h, : first + count])) for x in (k, v))
                np.testing.assert_allclose(
                    found[b, h, -1], _attended(q[b, h, first + count - 1], keys, values), rtol=1e-4, atol=1e-5
                )
        assert len(compiled.plans) == 2
        cache = request.query_state()["past.k"]
        np.testing.assert_array_equal(cache[1, :, 2:9], k[1, :, :7])
        assert not cache[0, :, 7:].any()


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_caches_are_written_where_they_are(device: str) -> None:
    with dovetail.Core().compile_model(
        _decoder().reshape({"q": (2, 2, 1, SIZE)}), device, {"STATE": "past.*:present.*"}
    ) as compiled:
        shapes = dict.fromkeys("qkv", (2, 2, 1, SIZE)) | {"lengths": (2,), "count": (1,)}
        placed = {node.op: node.kernel for node in compiled.report(shapes).nodes}
        assert placed == {"Sub": placed["Sub"], "TensorScatter": "in_cache", "Attention": "used_keys"}
        # The arena has no room for even one cache.
        assert compiled.report().memory[device] < 2 * 2 * ROOM * SIZE * 4
