"""Convolutions over long sequences, and transposed ones by windows of whole strides: the results, and what computes them."""

import numpy as np
import pytest

import dovetail
from dovetail.device import Reason, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.binding import Instead, Onednn
from dovetail_cpu_onednn.device import place
from dovetail_cpu_onednn.kernels._conv import LONG
from dovetail_cpu_onednn.kernels._sequence import WholeStrides
from dovetail_cpu_onednn.kernels.conv_transpose import Deconvolution
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.leaky_relu import LeakyRelu

RNG = np.random.default_rng(29)


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def double(*arrays):
    return [array.astype(np.float64) for array in arrays]


@pytest.mark.parametrize("columns", [LONG - 1, LONG, 3 * LONG + 5])
@pytest.mark.parametrize(
    ("channels", "maps", "kernel", "dilation", "stride"),
    [(8, 8, 7, 1, 1), (16, 24, 11, 5, 1), (5, 1, 7, 1, 1), (3, 40, 4, 1, 2), (33, 32, 3, 9, 1)],
)
def test_long_sequences(columns, channels, maps, kernel, dilation, stride):
    """With an activation, a whole operand and two sizes of the batch, around the length from which other code runs."""
    pads = (kernel - 1) * dilation // 2
    op = Conv(strides=(stride,), dilations=(dilation,), pads=(pads, pads))
    w, b = some(maps, channels, kernel) / 4, some(maps)
    g = GraphBuilder()
    y = g.node(op, g.input("x", "float32", ("N", channels, "L")), g.constant(w), g.constant(b))
    y = g.node(LeakyRelu(alpha=0.1), g.node(Add(), y, g.input("r", "float32", ("N", maps, "M"))))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    for batch in (1, 2):
        x = some(batch, channels, (columns - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pads)
        want = op.reference(*double(x, w, b))
        r = some(*want.shape)
        want += r
        np.testing.assert_allclose(compiled({"x": x, "r": r})[y], np.where(want < 0, want / 10, want), rtol=1e-4, atol=1e-4)


def test_the_second_implementation_is_taken_for_long_ones_alone(bench, monkeypatch):
    asked = []
    chosen = Onednn._chosen
    monkeypatch.setattr(Onednn, "_chosen", lambda *args: asked.append(args[3:]) or chosen(*args))
    for columns in (LONG, LONG - 1):
        graph = bench.single(Conv(), [some(1, 9, columns + 2), some(7, 9, 3)], constants=[1])[0]
        asked.clear()
        kernel = place(TypedNode.of(graph.nodes[0], graph), 1)
        assert kernel.kernel.name == "convolution"
        assert any(instead.is_spread for (instead,) in asked) is (columns == LONG)


def test_an_implementation_that_was_only_asked_about_changes_no_threads():
    lib = library()
    lib.plan_threads(2)
    sizes = ((1,), (0,), (1,), (1,))
    x, w = lib.tagged((1, 8, 40), 1), lib.tagged((8, 8, 3), 1)
    for second in ("jit", "none"):
        lib.describe("convolution_forward", 96, 1, x, w, None, x, *sizes, instead=Instead("brgconv", second, is_spread=True))
        assert lib.planned_threads == 2


CASES = {
    "vocoder": ((1, 16, 30), (16, 8, 8), 4, (2, 2), 0),
    "whole": ((2, 7, 20), (7, 5, 6), 3, (0, 0), 0),
    "one_sided": ((1, 4, 9), (4, 3, 6), 2, (5, 0), 0),
    "cut_at_the_end": ((3, 4, 9), (4, 1, 8), 4, (0, 7), 3),
    "rows_cut_off": ((2, 4, 9), (4, 2, 9), 3, (3, 3), 0),
    "stride_1": ((1, 4, 9), (4, 2, 3), 1, (1, 1), 0),
    "long": ((1, 6, LONG + 3), (6, 3, 4), 2, (1, 1), 0),
}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("shape", "weights", "stride", "pads", "more"), CASES.values(), ids=CASES)
def test_whole_strides(bench, shape, weights, stride, pads, more, has_bias):
    """With an activation and infinite numbers, which reach no other results than those of their windows; then another size."""
    op = ConvTranspose(strides=(stride,), pads=pads, output_padding=(more,))
    w, biases = some(*weights), [some(weights[1])] * has_bias
    w[0, 0, 0] = np.inf
    g = GraphBuilder()
    up = g.node(op, g.input("x", "float32", ("N", shape[1], "L")), g.constant(w), *map(g.constant, biases), name="up")
    y = g.node(LeakyRelu(alpha=0.5), up)
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    for size in (shape, (shape[0] + 1, shape[1], shape[2] + 2)):
        x = some(*size)
        x[0, 1, 3] = -np.inf
        want = op.reference(*double(x, w, *biases))
        np.testing.assert_allclose(compiled({"x": x})[y], np.where(want < 0, want / 2, want), rtol=1e-4, atol=1e-4)
        (step,) = compiled.plan((size,)).steps
        assert isinstance(next(p.kernel for p in step.executable.placements if p.node.node.name == "up"), WholeStrides)


@pytest.mark.parametrize(
    ("op", "shape", "weights", "reason"),
    [
        (ConvTranspose(strides=(2,)), (1, 4, 9), (4, 8, 5), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2,), dilations=(2,)), (1, 4, 9), (4, 8, 4), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2,), pads=(5, 0)), (1, 4, 9), (4, 8, 4), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2,), pads=(5, 0), output_padding=(1,)), (1, 4, 9), (4, 8, 6), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2,), group=2), (1, 4, 9), (4, 8, 4), Reason.SHAPE),
        (ConvTranspose(strides=(2, 2)), (1, 4, 9, 9), (4, 8, 4, 4), Reason.SHAPE),
    ],
    ids=["parts", "dilated", "long_pads", "nothing_reached", "groups", "images"],
)
def test_all_others_are_deconvolutions(bench, op, shape, weights, reason):
    graph = bench.single(op, [some(*shape), some(*weights)], constants=[1])[0]
    found = place(TypedNode.of(graph.nodes[0], graph), 1)
    assert isinstance(found.kernel, Deconvolution)
    assert found.refusals[1][1].reason is reason


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(
    ("op", "shape", "weights"),
    [
        (ConvTranspose(strides=(1, 2), pads=(0, 1, 0, 1), group=21), (2, 21, 5, 8), (21, 1, 1, 3)),
        (ConvTranspose(strides=(5,), pads=(3, 3), output_padding=(1,)), (1, 8, 9), (8, 5, 11)),
    ],
    ids=["depthwise", "sequence"],
)
def test_bias_and_post_ops_behind_the_gradient_of_a_convolution(op, shape, weights, has_bias):
    """oneDNN computes them number by number where it has no deconvolution of its own."""
    x, w, b = some(*shape), some(*weights), [some(weights[1] * op.group)] * has_bias
    want = op.reference(*double(x, w, *b))
    r = some(*want.shape)
    g = GraphBuilder()
    y = g.node(op, g.input("x", "float32", shape), g.constant(w), *map(g.constant, b), name="up")
    y = g.node(Add(), g.node(LeakyRelu(alpha=0.5), y), g.input("r", "float32", r.shape))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    np.testing.assert_allclose(compiled({"x": x, "r": r})[y], np.where(want < 0, want / 2, want) + r, rtol=1e-4, atol=1e-4)
    (step,) = compiled.plan((shape, r.shape)).steps
    *_, last = (one.stage.desc.implementation for one in step.executable.prepared["up"])
    assert not last.startswith("conv:")


@pytest.mark.parametrize(("dilation", "is_merged"), [(1, True), (8, False)])
def test_chains_stay_apart_from_convolutions_of_copied_windows(bench, dilation, is_merged):
    """oneDNN computes dilated depthwise convolutions by copies of windows, and what comes behind number by number."""
    x, w = some(1, 16, 40), some(16, 1, 3)
    op = Conv(group=16, dilations=(dilation,), pads=(dilation, dilation))
    g = GraphBuilder()
    y = g.node(LeakyRelu(alpha=0.5), g.node(op, g.input("x", "float32", x.shape), g.constant(w), name="conv"))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    want = op.reference(*double(x, w))
    np.testing.assert_allclose(compiled({"x": x})[y], np.where(want < 0, want / 2, want), rtol=1e-4, atol=1e-5)
    (step,) = compiled.plan((x.shape,)).steps
    (conv,) = (p for p in step.executable.placements if p.node.node.name == "conv")
    assert bool(conv.node.post_ops) is is_merged
