"""Softmax and Attention where the sums of exponentials permit no shift, and where they do not."""

import numpy as np
import pytest

from dovetail.op import Operator
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.softmax import Softmax

ROWS = {
    "usual": [0, 1, -3, 2, 5],
    "large": [300, 301, 299, 0, -300],
    "small": [-300, -301, -299, -303, -300],
    "masked": [-1e9, 0, -np.inf, 1, -1e9],
    "masked as a whole": [-1e9] * 5,
    "infinite as a whole": [-np.inf] * 5,
    "infinite": [np.inf, 0, 1, 2, 3],
    "not a number": [np.nan, 0, 1, 2, 3],
    "beyond the exponential of the largest float": [89, 0, 0, 0, 0],
    "below the exponential of the smallest float": [-110, -111, -112, -113, -114],
}


def exact(x):
    """In float64."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


class Copy(Operator):
    """A value of its own, whose memory the next node may take over."""

    domain = "test"

    def reference(self, X):
        return X.copy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("others", ["usual", "alone"])
@pytest.mark.parametrize("name", ROWS)
def test_softmax(bench, name, others, dtype):
    """Each row by itself and beside a usual one, in memory of its own and in that of the input."""
    x = np.array([ROWS[name]] + ([ROWS["usual"]] if others == "usual" else []), dtype)
    graph, feeds = bench.single(Softmax(), [x])
    (node,) = graph.nodes
    copied = type(node)("copy", Copy(), node.inputs, ("copied",)), type(node)("node", node.op, ("copied",), node.outputs)
    for nodes in ((node,), copied):
        (got,) = bench.run_twice(bench.executable(graph.replace(nodes=nodes)), feeds)
        np.testing.assert_allclose(got, exact(x), rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-40)


@pytest.mark.parametrize("offset", [0.0, 300.0, -300.0])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 400.0])
def test_attention(bench, offset, hidden, softcap):
    """Scores of several hundred; with one query that sees no key, whose result is 0."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((2, 3, 4, 8)).astype(np.float32) for _ in range(3))
    mask = (rng.standard_normal((4, 4)) + offset).astype(np.float32)
    if hidden:
        mask[1] = -np.inf
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(8)
    scores = (softcap * np.tanh(scores / softcap) if softcap else scores) + mask
    want = np.nan_to_num(exact(scores)) @ v
    got = bench.run_one(Attention(softcap=softcap), (q, k, v, mask), bench.kernel("attention", "heads"))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_attention_that_hides_nothing_makes_no_number_for_each_query_and_key(bench, monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, rows, 4)).astype(np.float32) for rows in (9, 11, 11))
    monkeypatch.setattr(Attention, "visible", None)
    got = bench.run_one(Attention(), (q, k, v), bench.kernel("attention", "heads"))
    want = exact(np.float64(q) @ np.float64(k).swapaxes(-1, -2) / 2) @ np.float64(v)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
