"""Depthwise convolutions over three axes run as convolutions of images, whose sums are added up."""

from dataclasses import replace

import numpy as np
import pytest

import dovetail
from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels.conv import Convolution
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(17)
DEPTHWISE = ("jit_dw:", "brdgmm_dw:")
"""Of oneDNN 3.2, and of 3.7 and later where data are channels last."""
CASES = {
    "same": (Conv(pads=(1,) * 6), 3),
    "valid": (Conv(), 3),
    "wide": (Conv(pads=(3,) * 6), 7),
    "strides": (Conv(pads=(1,) * 6, strides=(2, 2, 2)), 3),
    "uneven": (Conv(pads=(1, 0, 2, 0, 1, 1), strides=(3, 1, 2)), 3),
    "dilated": (Conv(pads=(2, 4, 0, 2, 0, 4), dilations=(2, 2, 3)), 3),
    "one_image": (Conv(pads=(0, 1, 1, 0, 1, 1)), (1, 3, 3)),
    "one_pixel": (Conv(pads=(1, 0, 0, 1, 0, 0)), (3, 1, 1)),
    "shorter": (Conv(pads=(0, 1, 1, 1, 1, 1)), 2),
}


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def weights(channels, kernel):
    return some(channels, 1, *((kernel,) * 3 if isinstance(kernel, int) else kernel)) / 4


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("channels", [2, 16, 33])
@pytest.mark.parametrize(("op", "kernel"), CASES.values(), ids=CASES)
def test_all_windows(op, kernel, channels, has_bias):
    """Of one volume and of several, in one model: other sizes take other images, or many more primitives."""
    op = replace(op, group=channels)
    w, b = weights(channels, kernel), some(channels) if has_bias else None
    g = GraphBuilder()
    x = g.input("x", "float32", ("N", channels, "D", "H", "W"))
    y = g.node(op, x, g.constant(w), *([] if b is None else [g.constant(b)]))
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN") as compiled:
        for size in ((1, channels, 8, 9, 7), (3, channels, 8, 11, 7), (40, channels, 8, 7, 7), (1, channels, 8, 9, 7)):
            data = some(*size)
            want = op.reference(*(None if a is None else a.astype(np.float64) for a in (data, w, b)))
            np.testing.assert_allclose(compiled(data)[0], want, rtol=1e-4, atol=1e-5)
        kernels = [n.kernel for n in compiled.report().nodes if n.op == "Conv"]
    assert len(kernels) == 1
    assert kernels[0].startswith("jit_dw:")


def test_between_others():
    """Channels last, as their neighbours take it; a relu behind it is a node of its own. Not a number stays where it was."""
    op = Conv(pads=(1,) * 6, group=16)
    first, middle, last = some(16, 3, 1, 1, 1), weights(16, 3), some(4, 16, 1, 1, 1)
    g = GraphBuilder()
    y = g.node(Conv(), g.input("x", "float32", (2, 3, 6, 7, 8)), g.constant(first))
    y = g.node(Conv(), g.node(Relu(), g.node(op, y, g.constant(middle))), g.constant(last))
    x = some(2, 3, 6, 7, 8)
    x[1, 1, 5, 0, 7] = np.nan
    want = op.reference(Conv().reference(x.astype(np.float64), first), middle)
    want = Conv().reference(np.where(want < 0, 0, want), last)
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN") as compiled:
        found, nodes = compiled(x)[0], compiled.report().nodes
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    assert np.isnan(found).any()
    assert [n.kernel for n in nodes if n.op == "Conv"][1].startswith(DEPTHWISE)


@pytest.mark.parametrize("computed", [False, True], ids=["far_pads", "computed_weights"])
def test_others_run_otherwise(computed):
    """No element of the kernel reaches all images; weights are an input."""
    op, w = Conv(pads=(3, 1, 1, 3, 1, 1) if not computed else (1,) * 6, group=5), weights(5, 3)
    g = GraphBuilder()
    x = g.input("x", "float32", (1, 5, 2, 4, 4))
    y = g.node(op, x, g.input("w", "float32", w.shape) if computed else g.constant(w))
    data = some(1, 5, 2, 4, 4)
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN") as compiled:
        found = compiled([data, w] if computed else data)[0]
        kernels = [n.kernel for n in compiled.report().nodes if n.op == "Conv"]
    np.testing.assert_allclose(found, op.reference(data.astype(np.float64), w), rtol=1e-4, atol=1e-5)
    assert not any(kernel.startswith("jit_dw:") for kernel in kernels)


@pytest.mark.skipif(not library().has_bfloat16, reason="this CPU has no instructions for bfloat16")
def test_beside_bfloat16():
    """They stay in float32, which is more precise and faster than windows that are copied in bfloat16."""
    op = Conv(pads=(1,) * 6, group=32)
    first, middle, last = some(32, 32, 1, 1, 1) / 6, weights(32, 3), some(64, 32, 1, 1, 1) / 6
    g = GraphBuilder()
    y = g.node(op, g.node(Conv(), g.input("x", "float32", (1, 32, 6, 7, 8)), g.constant(first)), g.constant(middle))
    y = g.node(Conv(), y, g.constant(last))
    x = some(1, 32, 6, 7, 8)
    want = Conv().reference(op.reference(Conv().reference(x.astype(np.float64), first), middle), last)
    hint = {"INFERENCE_PRECISION_HINT": "bf16"}
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN", hint) as compiled:
        found, nodes = compiled(x)[0], compiled.report().nodes
    np.testing.assert_allclose(found, want, rtol=0, atol=0.02 * np.abs(want).max())
    kernels = [n.kernel for n in nodes if n.op == "Conv"]
    assert "bf16" in kernels[0] + kernels[2]
    assert kernels[1].startswith(DEPTHWISE)


def test_barriers(bench):
    """Threads wait for each other behind each element of the kernel; not so for images."""
    cases = {(2, 4, 6, 5, 5): 5, (2, 4, 6, 5): 1}  # the middle of the kernel serves both volumes at once, the others one each
    for shape, count in cases.items():
        w = some(4, 1, *(3,) * (len(shape) - 2))
        graph = bench.single(Conv(pads=(1,) * (2 * len(shape) - 4), group=4), [some(*shape), w], constants=[1])[0]
        assert Convolution().barriers(TypedNode.of(graph.nodes[0], graph)) == count
