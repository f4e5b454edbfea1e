"""MatMulInteger by float32: exact up to the largest numbers, wherever the sums have to be cut."""

import numpy as np
import pytest

import dovetail
from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger


@pytest.mark.parametrize("k", [1, 257, 258, 259, 516, 1537])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("zeros", [False, True])
def test_sums_are_exact(bench, k, types, zeros):
    """Extreme numbers: every product as large as it can be in the first column, of both signs in the others."""
    rng = np.random.default_rng(k)
    a, b = (rng.choice([np.iinfo(t).min, np.iinfo(t).max], s).astype(t) for t, s in zip(types, ((3, k), (k, 5)), strict=True))
    a[0], b[:, 0] = np.iinfo(types[0]).max, np.iinfo(types[1]).max
    points = [np.array(np.iinfo(t).min, t) for t in types] if zeros else [None, None]
    wide = [x.astype(np.int64) - (0 if point is None else int(point)) for x, point in zip((a, b), points, strict=True)]
    graph, feeds = bench.single(MatMulInteger(), [a, b, *points], constants=(1, 3) if zeros else (1,))
    executable = bench.executable(graph)
    assert executable.reports[0].kernel == "exact float32"
    found = bench.run_twice(executable, feeds)
    np.testing.assert_array_equal(found[0], wide[0] @ wide[1])


def test_weights_that_are_computed_are_left_to_the_reference(bench):
    a = np.ones((2, 3), np.uint8)
    graph = bench.single(MatMulInteger(), [a, a.T.copy()])[0]
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == "ref"


@pytest.mark.parametrize(
    "x",
    [
        np.array([[0.5, 1.5, -253.5, 1.5]], np.float32),  # two halves are rounded up to 256
        np.array([-3, -1], np.float32),
        np.array([2, 7], np.float32),
        np.zeros((2, 2), np.float32),
        np.array([np.inf, 1], np.float32),
        np.array([np.nan, 1], np.float32),
        np.array(4.0, np.float32),
    ],
    ids=["halves", "negative", "positive", "zeros", "infinity", "nan", "scalar"],
)
def test_levels(bench, x):
    """As the definition has it, number by number."""
    graph, _ = bench.single(DynamicQuantizeLinear(), [x], outputs=3)
    executable = bench.executable(graph)
    assert executable.reports[0].kernel == "in place"
    found = bench.run_twice(executable, [x])
    for got, wanted in zip(found, DynamicQuantizeLinear().reference(x), strict=True):
        np.testing.assert_array_equal(got, wanted)
    if np.isfinite(x).all() and x.any():
        real = (found[0].astype(np.float64) - float(found[2])) * float(found[1])
        np.testing.assert_allclose(real, x, atol=0.51 * float(found[1]))


@pytest.mark.parametrize("zeros", [None, np.array([3, -4, 5, 0, 1], np.int8)])
def test_plans_share_the_weights_in_float32(zeros):
    """MiniLM's take 42 MB."""
    rng, g = np.random.default_rng(8), GraphBuilder()
    weights = rng.integers(-128, 128, (2, 7, 5)).astype(np.int8)
    x, own = g.input("x", "uint8", ("N", 7)), [] if zeros is None else ["", g.constant(zeros)]
    names = [g.node(MatMulInteger(), x, g.constant(w), *own) for w in weights]
    image = g.input("image", "uint8", ("N", 3, 4, 4))
    names.append(g.node(ConvInteger(), image, g.constant(rng.integers(-128, 128, (2, 3, 3, 3)).astype(np.int8))))
    compiled = dovetail.Core(config=False).compile_model(g.model(names), "NUMPY")
    found = []
    for rows in (4, 2, 3):
        feeds = {"x": rng.integers(0, 256, (rows, 7)).astype(np.uint8), "image": np.ones((rows, 3, 4, 4), np.uint8)}
        results = [*compiled(feeds).values()]
        for result, w in zip(results, weights, strict=False):
            np.testing.assert_array_equal(result, feeds["x"].astype(int) @ (w.astype(int) - (0 if zeros is None else zeros)))
        (step,) = compiled.plan(tuple(feeds[name].shape for name in compiled.inputs)).steps
        found.append([state.wei if hasattr(state, "wei") else state for state in step.executable.states])
    assert len({id(one) for one in found[0]}) == 3
    assert all(one is first for others in found for one, first in zip(others, found[0], strict=True))
