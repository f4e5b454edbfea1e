"""Convolutions and resampling as they occur in published models: sound, detectors, squeeze-and-excitation."""

import numpy as np
import pytest

import dovetail
from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail.ops.add import Add
from dovetail.ops.conv import Conv
from dovetail.ops.resize import Resize
from dovetail_cpu_onednn.kernel import relaid
from dovetail_cpu_onednn.kernels._conv import is_slow
from dovetail_cpu_onednn.kernels.conv import KERNELS

RNG = np.random.default_rng(11)


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("op", "shape", "weights"),
    [
        (Conv(strides=(16,)), (1, 1, 401), (34, 1, 40)),
        (Conv(pads=(3, 3)), (2, 16, 101), (1, 16, 7)),
        (Conv(), (3, 32, 1, 1), (8, 32, 1, 1)),
        (Conv(pads=(1, 1, 1, 1)), (1, 16, 19, 17), (1, 16, 3, 3)),
    ],
    ids=["sound", "to_one_channel", "squeezed", "mask"],
)
def test_one_channel_or_element(bench, op, shape, weights):
    """Plain data that are channels-last data too are no reason for oneDNN's reference, nor for its copies of windows."""
    x, w = some(*shape), some(*weights) / 4
    graph = bench.inferred(bench.single(op, [x, w], constants=[1]))
    node = TypedNode.of(graph.nodes[0], graph)
    chosen = KERNELS[0].recipe(node, True, False)
    for config in KERNELS[0].configurations(node):
        found = KERNELS[0].final(relaid(node, config), False)
        assert is_slow(found) <= is_slow(chosen), (config, found.name, chosen.name)
    g = GraphBuilder()
    g.node(op, g.input("x", "float32", shape), g.constant(w), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN")
    want = op.reference(x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_and_add_between_convolutions(mode):
    """The neck of a detector: oneDNN's simple resampling adds the wrong elements where channels lie last."""
    w = [some(24, 8, 1, 1), some(24, 24, 1, 1), some(8, 24, 1, 1)]
    coarse, fine = some(2, 8, 5, 6), some(2, 24, 10, 12)
    op = Resize(mode=mode)
    g = GraphBuilder()
    up = g.node(
        op, g.node(Conv(), g.input("coarse", "float32", coarse.shape), g.constant(w[0])), "", g.constant(np.float32([1, 1, 2, 2]))
    )
    side = g.node(Conv(), g.input("fine", "float32", fine.shape), g.constant(w[1]))
    g.node(Conv(), g.node(Add(), side, up), g.constant(w[2]), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN")
    wide = [a.astype(np.float64) for a in (coarse, fine, *w)]
    up = op.reference(Conv().reference(wide[0], wide[2]), None, np.float32([1, 1, 2, 2]))
    want = Conv().reference(Conv().reference(wide[1], wide[3]) + up, wide[4])
    np.testing.assert_allclose(compiled({"coarse": coarse, "fine": fine})["y"], want, rtol=1e-4, atol=1e-4)
    (resize,) = [n for n in compiled.report().nodes if n.op == "Resize"]
    assert "simple" not in resize.kernel
