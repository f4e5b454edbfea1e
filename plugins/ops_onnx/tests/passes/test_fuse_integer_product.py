"""MatMulInteger and ConvInteger with the Cast behind them: what is merged, its place in the graph, the same results."""

import numpy as np
import pytest

from dovetail.device import DType
from dovetail.graph import GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.decompose import decompose
from dovetail_ops_onnx import find
from dovetail_ops_onnx.passes.fuse_integer_product import fuse_integer_products

A = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
B = np.arange(-100, 60, 20, dtype=np.int8).reshape(4, 2)


def op(name, **attributes):
    return find(name, 17)(**attributes)


def graph(to=DType.FLOAT32, keep_sums=False):
    """MatMulInteger, Cast, and a product with a scale that is computed after both."""
    g = GraphBuilder()
    a, zero, factor = g.input("a", "int8", (3, 4)), g.input("z", "int8", ()), g.input("f", to, ())
    sums = g.node(op("MatMulInteger"), a, g.constant(B), zero)
    real = g.node(op("Cast", to=to), sums)
    late = g.node(op("Neg"), factor)
    return fold_constants(g.graph([g.node(op("Mul"), real, late), *([sums] if keep_sums else [])]))


def kinds(found):
    return [node.op.key for node in found.nodes]


def test_one_operator_before_its_reader():
    before = graph()
    after = drop_dead_nodes(fuse_integer_products(before, lambda *_: True))
    assert sorted(kinds(after)) == ["Mul", "Neg", "dovetail::MatMulIntegerToFloat"]
    assert kinds(after)[-2:] == ["dovetail::MatMulIntegerToFloat", "Mul"]
    known = {"a": A, "z": np.int8(3), "f": np.float32(0.5)}
    constants = {**after.constants, **{name: np.asarray(value) for name, value in known.items()}}
    done = fold_constants(after.replace(inputs=(), constants=constants))
    want = (A.astype(np.int64) - 3) @ B.astype(np.int64) * np.float32(-0.5)
    np.testing.assert_array_equal(done.constants[after.outputs[0]], want)


def scaled(scale, scale_is_read=False, order=1):
    """MatMulInteger, Cast, and a product with two scales, one of which is computed."""
    g = GraphBuilder()
    a, zero, own = g.input("a", "int8", (3, 4)), g.input("z", "int8", ()), g.input("s", "float32", ())
    real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("MatMulInteger"), a, g.constant(B), zero))
    both = g.node(op("Mul"), *[own, g.constant(np.asarray(scale, np.float32))][::order])
    return fold_constants(g.graph([g.node(op("Mul"), *[both, real][::order]), *([both] if scale_is_read else [])]))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("scale", [0.3, [0.3], [0.3, 0.7]])
def test_scales_are_inputs_of_the_product(scale, order):
    after = fuse_integer_products(scaled(scale, order=order), lambda *_: True)
    assert kinds(after) == ["dovetail::MatMulIntegerToFloat"]
    assert after.nodes[0].inputs[4] == "s"
    known = {"a": A, "z": np.int8(3), "s": np.float32(0.1)}
    constants = {**after.constants, **{name: np.asarray(value) for name, value in known.items()}}
    done = fold_constants(after.replace(inputs=(), constants=constants))
    sums = ((A.astype(np.int64) - 3) @ B.astype(np.int64)).astype(np.float32)
    np.testing.assert_array_equal(done.constants[after.outputs[0]], sums * (np.float32(0.1) * np.float32(scale)))


@pytest.mark.parametrize(
    ("given", "keeps"),
    [
        (scaled(0.3, scale_is_read=True), lambda *_: True),
        (scaled([[0.3], [0.5], [0.7]]), lambda *_: True),
        (scaled([[[0.3]]]), lambda *_: True),
        (scaled(0.3), lambda node, _: len(node.inputs) < 5),
    ],
    ids=["read elsewhere", "one for each row", "of more axes", "refused"],
)
def test_scales_that_stay(given, keeps):
    after = fuse_integer_products(given, keeps)
    assert sorted(kinds(after)) == ["Mul", "Mul", "dovetail::MatMulIntegerToFloat"]
    assert [len(node.inputs) for node in after.nodes if node.op.domain] == [3]


@pytest.mark.parametrize(("given", "keeps"), [(graph(), False), (graph(to=DType.FLOAT64), True), (graph(keep_sums=True), True)])
def test_what_stays(given, keeps):
    assert fuse_integer_products(given, lambda *_: keeps) is given


def convolution(scale, cast=True):
    """ConvInteger of images that are 3 round their edges, Cast, and a product with two scales, one of which is computed."""
    g = GraphBuilder()
    x, zero, own = g.input("x", "uint8", (1, 2, 4, 5)), g.input("z", "uint8", ()), g.input("s", "float32", ())
    w = g.constant(np.arange(-50, 58, 3, dtype=np.int8).reshape(2, 2, 3, 3))
    real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("ConvInteger", pads=(1, 0, 1, 0), strides=(2, 1)), x, w, zero))
    both = g.node(op("Mul"), own, g.constant(np.asarray(scale, np.float32)))
    return fold_constants(g.graph([g.node(op("Mul"), both, real)]))


@pytest.mark.parametrize("scale", [0.3, [[[0.3]], [[0.7]]], [[[[0.3]], [[0.7]]]]], ids=["one", "channels", "with the batch"])
def test_convolutions_with_scales(scale):
    before = convolution(scale)
    after = fuse_integer_products(before, lambda *_: True)
    assert kinds(after) == ["dovetail::ConvIntegerToFloat"]
    assert (after.nodes[0].op.pads, after.nodes[0].op.strides) == ((1, 0, 1, 0), (2, 1))
    known = {"x": np.arange(40, dtype=np.uint8).reshape(1, 2, 4, 5), "z": np.uint8(3), "s": np.float32(0.1)}
    arrays = {name: np.asarray(value) for name, value in known.items()}
    composed = decompose(after, lambda node, _: not node.op.domain)
    assert "ConvInteger" in kinds(composed)
    done, again, want = (
        fold_constants(graph.replace(inputs=(), constants={**graph.constants, **arrays})).constants[graph.outputs[0]]
        for graph in (after, composed, before)
    )
    np.testing.assert_array_equal(done, want)
    np.testing.assert_array_equal(again, want)
    assert len(np.unique(want)) > 10


def test_scales_along_the_width_stay():
    after = fuse_integer_products(convolution(np.ones((1, 1, 3))), lambda *_: True)
    assert sorted(kinds(after)) == ["Mul", "Mul", "dovetail::ConvIntegerToFloat"]


def halves(keep_sums=False, to=DType.FLOAT32):
    """Two convolutions by halves of the weights that are added up, Cast, and a product with a scale."""
    g = GraphBuilder()
    x, zero = g.input("x", "uint8", (1, 2, 4, 5)), g.input("z", "uint8", ())
    weights = [np.arange(first, first + 108, 3, dtype=np.int8).reshape(2, 2, 3, 3) for first in (-50, -70)]
    parts = [g.node(op("ConvInteger"), x, g.constant(w), zero) for w in weights]
    real = g.node(op("Cast", to=to), g.node(op("Add"), *parts))
    scaled = g.node(op("Mul"), real, g.constant(np.asarray(0.3, to.numpy)))
    return fold_constants(g.graph([scaled, *(parts[:1] if keep_sums else [])]))


def test_halves_are_added_up_as_real_numbers():
    before = halves()
    after = fuse_integer_products(before, lambda *_: True)
    validate(after)
    assert kinds(after) == ["dovetail::ConvIntegerToFloat"] * 2 + ["Add", "Mul"]
    assert {after.types[name].dtype for name in after.nodes[2].inputs} == {DType.FLOAT32}
    arrays = {"x": np.arange(40, dtype=np.uint8).reshape(1, 2, 4, 5), "z": np.asarray(np.uint8(3))}
    done, want = (
        fold_constants(graph.replace(inputs=(), constants={**graph.constants, **arrays})).constants[graph.outputs[0]]
        for graph in (after, before)
    )
    np.testing.assert_array_equal(done, want)


@pytest.mark.parametrize(("changed", "keeps"), [({}, False), ({"keep_sums": True}, True), ({"to": DType.FLOAT64}, True)])
def test_halves_that_stay(changed, keeps):
    given = halves(**changed)
    assert fuse_integer_products(given, lambda *_: keeps) is given
