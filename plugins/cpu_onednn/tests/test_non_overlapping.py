"""Transposed convolutions whose windows neither overlap nor have gaps are products; all others are deconvolutions."""

import numpy as np
import pytest

import dovetail
from dovetail.device import Accepted, Reason, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.device import place
from dovetail_cpu_onednn.kernels.conv_transpose import Deconvolution, NonOverlapping
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(17)
CASES = {
    "heads": ((1, 24, 5, 7), (24, 24, 2, 2)),
    "to_one_channel": ((2, 24, 5, 7), (24, 1, 2, 2)),
    "lines": ((3, 16, 9), (16, 8, 3)),
    "volumes": ((2, 16, 3, 4, 5), (16, 8, 2, 3, 2)),
    "wide": ((1, 32, 6, 4), (32, 16, 1, 2)),
    "tall": ((1, 17, 6, 4), (17, 5, 4, 1)),
    "one_pixel": ((2, 24, 1, 1), (24, 9, 3, 2)),
    "single": ((2, 24, 3, 5), (24, 9, 1, 1)),
}


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def typed(bench, op, shape, weights):
    graph = bench.single(op, [some(*shape), some(*weights)], constants=[1])[0]
    return TypedNode.of(graph.nodes[0], graph)


@pytest.fixture
def _products(bench):
    """oneDNN's fast products are not for all CPUs."""
    answer = NonOverlapping().supports(typed(bench, ConvTranspose(strides=(2, 2)), (1, 24, 5, 7), (24, 24, 2, 2)))
    if not answer:
        assert answer.reason is Reason.CAPABILITY
        pytest.skip(answer.detail)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("shape", "weights"), CASES.values(), ids=CASES)
def test_all_windows(shape, weights, has_bias):
    """With relu and a factor, which other sizes of the model take along, as they do the weights."""
    op = ConvTranspose(strides=weights[2:])
    w, b = some(*weights) / 4, some(weights[1]) if has_bias else None
    g = GraphBuilder()
    symbols = ("N", shape[1], *(f"d{axis}" for axis in range(len(shape) - 2)))
    y = g.node(op, g.input("x", "float32", symbols), g.constant(w), *([] if b is None else [g.constant(b)]), name="up")
    y = g.node(Mul(), g.node(Relu(), y), g.constant(np.float32(1.5)))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    copies = []
    for size in (shape, (shape[0] + 1, shape[1], *(n + 2 for n in shape[2:]))):
        x = some(*size)
        want = op.reference(x.astype(np.float64), w.astype(np.float64), None if b is None else b.astype(np.float64))
        np.testing.assert_allclose(compiled({"x": x})[y], 1.5 * np.maximum(want, 0), rtol=1e-4, atol=1e-5)
        (step,) = compiled.plan((size,)).steps
        constants = [found for one in step.executable.prepared["up"] for found in one.constants.values()]
        copies.append([found for found in constants if found.repack is not None or found.src is not found.dst])
    assert len(copies[0]) == len(copies[1])
    assert all(a is b for a, b in zip(*copies, strict=True))


@pytest.mark.usefixtures("_products")
@pytest.mark.parametrize(("shape", "weights"), CASES.values(), ids=CASES)
def test_the_product_takes_them(bench, shape, weights):
    node = typed(bench, ConvTranspose(strides=weights[2:]), shape, weights)
    assert isinstance(place(node, 1).kernel, NonOverlapping)


@pytest.mark.usefixtures("_products")
@pytest.mark.parametrize(
    ("op", "weights", "reason"),
    [
        (ConvTranspose(strides=(2, 2)), (24, 8, 3, 3), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(3, 2)), (24, 8, 2, 2), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(3, 3), dilations=(2, 2)), (24, 8, 2, 2), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2, 2), pads=(1, 0, 0, 0)), (24, 8, 2, 2), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2, 2), pads=(0, 0, 0, 1)), (24, 8, 2, 2), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2, 2), output_padding=(1, 0)), (24, 8, 2, 2), Reason.ATTRIBUTE),
        (ConvTranspose(strides=(2, 2), group=2), (24, 4, 2, 2), Reason.SHAPE),
    ],
    ids=["overlap", "gaps", "dilated", "cut_at_the_top", "cut_at_the_right", "more", "groups"],
)
def test_all_others_are_deconvolutions(bench, op, weights, reason):
    node = typed(bench, op, (1, 24, 5, 7), weights)
    found = place(node, 1)
    assert isinstance(found.kernel, Deconvolution)
    assert found.refusals[0][1].reason is reason


@pytest.mark.usefixtures("_products")
@pytest.mark.parametrize(("shape", "is_product"), [((), True), ((1, 1, 1), True), ((24, 1, 1), False), ((1, 1, 14), True)])
def test_post_ops_with_one_number(shape, is_product):
    """14 is the width of the result: the product has other columns, and no primitive takes it, so that the chain ends."""
    w, factor, x = some(24, 24, 2, 2), np.float32(1) + abs(some(*shape)), some(1, 24, 5, 7)
    g = GraphBuilder()
    up = g.node(ConvTranspose(strides=(2, 2)), g.input("x", "float32", x.shape), g.constant(w), name="up")
    other = g.input("factor", "float32", shape)
    model = g.model([g.node(Mul(), g.node(Relu(), up), other, outputs=["y"])])
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    want = np.maximum(ConvTranspose(strides=(2, 2)).reference(x, w), 0) * factor
    np.testing.assert_allclose(compiled({"x": x, "factor": factor})["y"], want, rtol=1e-4, atol=1e-4)
    (step,) = compiled.plan((x.shape, shape)).steps
    kernels = {p.node.node.name: p.kernel for p in step.executable.placements}
    assert isinstance(kernels["up"], NonOverlapping if is_product else Deconvolution)


@pytest.mark.usefixtures("_products")
def test_computed_weights_are_for_the_deconvolution(bench):
    graph = bench.single(ConvTranspose(strides=(2, 2)), [some(1, 24, 5, 7), some(24, 8, 2, 2)])[0]
    answer = NonOverlapping().supports(TypedNode.of(graph.nodes[0], graph))
    assert not isinstance(answer, Accepted)
    assert answer.reason is Reason.OPERATOR
