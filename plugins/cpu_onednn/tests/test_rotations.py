"""RotaryEmbedding on whole heads, against the formula in float64."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding

RNG = np.random.default_rng(44)


def turned(x, cosine, sine, interleaved, count):
    """Of [batch, heads, sequence, size] and angles [batch, sequence, pairs]."""
    x, done = x.astype(np.float64), x.astype(np.float64)
    one, other = (slice(0, count, 2), slice(1, count, 2)) if interleaved else (slice(0, count // 2), slice(count // 2, count))
    c, s = (angles.astype(np.float64)[:, None] for angles in (cosine, sine))
    done[..., one], done[..., other] = x[..., one] * c - x[..., other] * s, x[..., one] * s + x[..., other] * c
    return done


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("count", [0, 6], ids=["whole", "part"])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("rank", [3, 4])
def test_two_layers(interleaved, count, positions, rank):
    """They share their work arrays; the Relu behind the second stays a node of its own."""
    batch, heads, sequence, size = 2, 3, 5, 10
    pairs = (count or size) // 2
    x = RNG.standard_normal((batch, heads, sequence, size)).astype(np.float32)
    tables = [RNG.uniform(-1, 1, (9, pairs)).astype(np.float32) for _ in range(2)]
    ids = RNG.integers(0, 9, (batch, sequence))
    op = RotaryEmbedding(interleaved=interleaved, rotary_embedding_dim=count, num_heads=heads if rank == 3 else None)
    g, given = GraphBuilder(), x if rank == 4 else x.swapaxes(1, 2).reshape(batch, sequence, -1)
    angles = [g.constant(table if positions else table[ids]) for table in tables]
    extra = [g.input("ids", "int64", ids.shape)] if positions else []
    first = g.node(op, g.input("x", "float32", given.shape), *angles, *extra)
    compiled = Core(config=False).compile_model(g.model([g.node(Relu(), g.node(op, first, *angles, *extra)), first]), "ONEDNN")
    feeds = {"x": np.ascontiguousarray(given), **({"ids": ids} if positions else {})}
    once = turned(x, tables[0][ids], tables[1][ids], interleaved, count or size)
    twice = np.maximum(turned(once, tables[0][ids], tables[1][ids], interleaved, count or size), 0)
    for _ in range(2):
        for got, want in zip(compiled(feeds).values(), (twice, once), strict=True):
            found = got if rank == 4 else got.reshape(batch, sequence, heads, size).swapaxes(1, 2)
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    kinds = [(node.op, node.kernel) for node in compiled.report().nodes]
    assert [kernel for op, kernel in kinds if op == "RotaryEmbedding"] == ["pairs", "pairs"]
    assert len(kinds) == 3


def test_further_lengths_take_over():
    table = RNG.uniform(-1, 1, (40, 4)).astype(np.float32)
    g = GraphBuilder()
    x, ids = g.input("x", "float32", (1, 2, "n", 8)), g.input("ids", "int64", (1, "n"))
    angles = g.constant(table), g.constant(table[::-1].copy())
    compiled = Core(config=False).compile_model(g.model([g.node(RotaryEmbedding(), x, *angles, ids)]), "ONEDNN")
    for length in (3, 7, 11):
        data, places = RNG.standard_normal((1, 2, length, 8)).astype(np.float32), RNG.integers(0, 40, (1, length))
        (got,) = compiled({"x": data, "ids": places}).values()
        want = turned(data, table[places], table[::-1][places], False, 8)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert compiled.report({"x": data.shape, "ids": places.shape}).passes[-1].name == "take_over"
