"""Nodes that move elements do so with stored numbers: which nodes are left, and the same bits."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from dovetail.device import DType, PostOps
from dovetail.graph import GraphBuilder
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx import find
from dovetail_ops_onnx.passes.fuse_quantized import hold_quantized, release_quantized
from dovetail_ops_onnx.passes.move_quantized import move_quantized

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]


def op(name, **attributes):
    return find(name, 18)(**attributes)


class Builder(GraphBuilder):
    """Quantizations number 0, 1 and so on have different parameters."""

    def parameters(self, number):
        return self.constant(np.float32(0.02 + 0.013 * number)), self.constant(np.uint8(100 + 9 * number))

    def real(self, x, number=0):
        return self.node(op("DequantizeLinear"), x, *self.parameters(number))

    def stored(self, x, number=0):
        return self.node(op("QuantizeLinear"), x, *self.parameters(number))

    def bytes(self, *shape):
        return self.input("x", "uint8", shape)

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))


def moved(g, outputs, keeps=lambda node, graph: True):
    """The graph after the pass, which must give the same as before."""
    before = fold_constants(hold_quantized(g.graph(outputs)))
    after = move_quantized(before, keeps)
    validate(after)
    rng = np.random.default_rng(5)
    feeds = {}
    for name in before.inputs:
        dims, is_byte = before.types[name].dims, before.types[name].dtype is DType.UINT8
        feeds[name] = rng.integers(0, 256, dims, np.uint8) if is_byte else rng.standard_normal(dims).astype(np.float32)
    for one, other in zip(evaluated(before, feeds), evaluated(release_quantized(after), feeds), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return after


def kinds(graph):
    return [node.op.op_type for node in graph.nodes]


MOVES = {
    "Transpose": lambda g, x: g.node(op("Transpose", perm=(0, 2, 3, 1)), x),
    "Reshape": lambda g, x: g.node(op("Reshape"), x, g.ints(2, 4, -1)),
    "Flatten": lambda g, x: g.node(op("Flatten"), x),
    "MaxPool": lambda g, x: g.node(op("MaxPool", kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), x, outputs=1),
    "Resize": lambda g, x: g.node(op("Resize", mode="nearest"), x, "", g.constant(np.float32([1, 1, 2, 2]))),
    "Slice": lambda g, x: g.node(op("Slice"), x, g.ints(1), g.ints(9), g.ints(2), g.ints(2)),
    "Gather": lambda g, x: g.node(op("Gather", axis=1), x, g.ints(3, 0)),
    "Expand": lambda g, x: g.node(op("Expand"), x, g.ints(3, 1, 1, 1, 1)),
    "Tile": lambda g, x: g.node(op("Tile"), x, g.ints(1, 2, 1, 1)),
    "DepthToSpace": lambda g, x: g.node(op("DepthToSpace", blocksize=2), x),
    "SpaceToDepth": lambda g, x: g.node(op("SpaceToDepth", blocksize=2), x),
    "Split": lambda g, x: g.node(op("Split", axis=1, num_outputs=2), x, outputs=2)[1],
    "Concat": lambda g, x: g.node(op("Concat", axis=2), x, x),
}


@pytest.mark.parametrize("name", MOVES)
def test_between_equal_quantizations(name):
    g = Builder()
    after = moved(g, [g.stored(MOVES[name](g, g.real(g.bytes(2, 4, 6, 8))))])
    assert kinds(after) == [name]


@pytest.mark.parametrize("name", sorted(set(MOVES) - {"Concat"}))
def test_to_another_quantization(name):
    g = Builder()
    after = moved(g, [g.stored(MOVES[name](g, g.real(g.bytes(2, 4, 6, 8))), 1)])
    assert kinds(after) == [name, "DequantizeLinear", "QuantizeLinear"]


@pytest.mark.parametrize("name", MOVES)
def test_without_a_kernel(name):
    g = Builder()
    after = moved(g, [g.stored(MOVES[name](g, g.real(g.bytes(2, 4, 6, 8))))], lambda node, graph: False)
    is_view = name in ("Flatten", "Reshape")
    assert kinds(after) == ([name] if is_view else ["DequantizeLinear", name, "QuantizeLinear"])


@pytest.mark.parametrize("name", ["Transpose", "Reshape", "Concat", "Slice", "MaxPool", "Gather", "Split"])
def test_real_numbers_are_quantized_before_they_move(name):
    """Unless fewer of them would be quantized afterwards; a maximum passes NaN on, which bytes cannot hold."""
    g = Builder()
    after = moved(g, [g.stored(MOVES[name](g, g.input("x", "float32", (2, 4, 6, 8))))])
    stay = name in ("Slice", "MaxPool", "Gather", "Split")
    assert kinds(after)[0] == (name if stay else "QuantizeLinear")
    assert kinds(after).count(name) == 1


def test_all_parts_of_a_split():
    g = Builder()
    parts = g.node(op("Split", axis=1, num_outputs=2), g.input("x", "float32", (2, 4, 6, 8)), outputs=2)
    assert kinds(moved(g, [g.stored(part) for part in parts])) == ["QuantizeLinear", "Split"]


def test_parts_that_are_quantized_differently():
    g = Builder()
    parts = g.node(op("Split", axis=1, num_outputs=2), g.input("x", "float32", (2, 4, 6, 8)), outputs=2)
    after = moved(g, [g.stored(part, number) for number, part in enumerate(parts)])
    assert kinds(after) == ["Split", "QuantizeLinear", "QuantizeLinear"]


def test_chains_of_moves_with_quantizations_between():
    """As exporters quantize a shuffle of channels; the numbers that a product reads are dequantized behind all."""
    g = Builder()
    x = g.real(g.bytes(2, 4, 6, 8))
    for number, shape in enumerate(((2, 2, 2, 6, 8), (2, 4, 6, 8))):
        x = g.real(g.stored(g.node(op("Reshape"), x, g.ints(*shape))))
        if not number:
            x = g.real(g.stored(g.node(op("Transpose", perm=(0, 2, 1, 3, 4)), x)))
    after = moved(g, [g.node(op("Relu"), x), g.stored(x)])
    assert sorted(kinds(after)) == ["DequantizeLinear", "Relu", "Reshape", "Reshape", "Transpose"]


def test_values_that_nothing_quantized_reads_stay_real():
    """Recognisers of exported forms look for transposes in front of products."""
    g = Builder()
    after = moved(g, [g.node(op("Relu"), g.node(op("Transpose", perm=(0, 2, 1)), g.real(g.bytes(2, 4, 6))))])
    assert kinds(after) == ["DequantizeLinear", "Transpose", "Relu"]


def test_concat_of_several_quantizations():
    """Those that differ from the result's are brought to it, real ones too; without tables for bytes all stays."""

    def made():
        g = Builder()
        parts = [g.real(g.input(name, "uint8", (2, 3, 4)), number) for number, name in enumerate("abc")]
        return g, [g.stored(g.node(op("Concat", axis=1), *parts, g.input("d", "float32", (2, 1, 4))), 1)]

    assert sorted(kinds(moved(*made()))) == ["Concat", *["DequantizeLinear"] * 2, *["QuantizeLinear"] * 3]
    without = moved(*made(), lambda node, graph: node.op.op_type != "ByteTable")
    assert kinds(without) == ["DequantizeLinear"] * 3 + ["Concat", "QuantizeLinear"]


def test_concat_of_a_real_value_that_others_read():
    g = Builder()
    y = g.input("y", "float32", (2, 3))
    joined = g.node(op("Concat", axis=1), g.real(g.bytes(2, 3)), y)
    after = moved(g, [g.stored(joined), g.node(op("Relu"), y)])
    assert sorted(kinds(after)) == ["Concat", "DequantizeLinear", "QuantizeLinear", "Relu"]


def test_concat_that_others_read_too():
    g = Builder()
    joined = g.node(op("Concat", axis=1), g.real(g.bytes(2, 3)), g.real(g.input("y", "uint8", (2, 3)), 1))
    after = moved(g, [g.stored(joined), g.node(op("Relu"), joined)])
    assert sorted(kinds(after)) == ["Concat", "DequantizeLinear", "DequantizeLinear", "QuantizeLinear", "Relu"]


@pytest.mark.parametrize("moves", [["Transpose"], ["Flat"], ["Transpose", "Flat"], ["Twice"]], ids=str)
def test_weights_with_a_scale_for_each_channel(moves):
    """The axis goes along; the constant is moved at once. Where a reshape divides the axis, nothing moves."""
    g = Builder()
    stored = g.constant(np.arange(24, dtype=np.int8).reshape(4, 3, 2))
    scales, zeros = g.constant(np.float32([0.1, 0.2, 0.3, 0.4])), g.constant(np.zeros(4, np.int8))
    w = g.node(op("DequantizeLinear", axis=0), stored, scales, zeros)
    for move in moves:
        if move == "Transpose":
            w = g.node(op("Transpose", perm=(1, 2, 0)), w)
        else:
            w = g.node(op("Reshape"), w, g.ints(*{"Flat": (-1, 4) if len(moves) > 1 else (4, -1), "Twice": (2, 12)}[move]))
    if moves[-1] == "Transpose":
        w = g.node(op("Reshape"), w, g.ints(6, 4))
    columns = {"Twice": 2, "Flat": 6 if len(moves) > 1 else 4}.get(moves[-1], 6)
    after = moved(g, [g.node(op("MatMul"), g.real(g.bytes(5, columns)), w)])
    assert kinds(after).count("DequantizeLinear") == 2
    assert ("Reshape" in kinds(after)) == (moves == ["Twice"])
    assert "Transpose" not in kinds(after)


def test_nodes_with_post_ops_stay():
    g = Builder()
    x = g.node(op("Transpose", perm=(1, 0)), g.real(g.bytes(2, 3)), post_ops=PostOps().append_eltwise("square"))
    assert kinds(moved(g, [g.stored(x)])) == ["DequantizeLinear", "Transpose", "QuantizeLinear"]


@pytest.mark.parametrize("scale", [-0.02, 0.0, 1e-40, 3e38, float("nan")])
@pytest.mark.parametrize("name", ["MaxPool", "Flatten"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
def test_unusual_scales(name, scale):
    """A maximum of real numbers is the minimum of those stored with a negative scale."""
    g = Builder()
    parameters = g.constant(np.float32(scale)), g.constant(np.uint8(117))
    x = g.node(op("DequantizeLinear"), g.bytes(2, 4, 6, 8), *parameters)
    y = g.node(op("QuantizeLinear"), MOVES[name](g, x), *parameters)
    assert kinds(moved(g, [y])) == ["DequantizeLinear", name, "QuantizeLinear"]


def test_an_operator_that_is_for_floats_only():
    class Older(find("MaxPool", 18)):
        types = {"T": frozenset({DType.FLOAT32}), "I": frozenset({DType.INT64})}

    g = Builder()
    pooled = g.node(Older(kernel_shape=(2, 2)), g.real(g.bytes(2, 4, 6, 8)), outputs=1)
    assert kinds(moved(g, [g.stored(pooled)])) == ["DequantizeLinear", "Older", "QuantizeLinear"]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed):
    """Values with several readers, of several quantizations, as outputs too."""
    rng, g = np.random.default_rng(seed), Builder()
    values = [g.real(g.bytes(2, 4, 4, 4)), g.input("f", "float32", (2, 4, 4, 4)), g.real(g.input("z", "uint8", (2, 4, 4, 4)), 1)]
    stored = []
    for _ in range(12):
        x, y = (values[i] for i in rng.integers(len(values), size=2))
        kind = rng.integers(6)
        if kind == 0:
            values.append(g.node(op("Transpose", perm=tuple(rng.permutation(4).tolist())), x))
            values[-1] = g.node(op("Reshape"), values[-1], g.ints(2, 4, 4, 4))
        elif kind == 1:
            halves = (g.node(op("Split", axis=1, num_outputs=2), v, outputs=2)[rng.integers(2)] for v in (x, y))
            values.append(g.node(op("Concat", axis=1), *halves))
        elif kind == 2:
            values.append(g.node(op("MaxPool", kernel_shape=(3, 3), pads=(1, 1, 1, 1)), x, outputs=1))
        else:
            stored.append(g.stored(x, number := int(rng.integers(2))))
            values.append(g.real(stored[-1], number))
    outputs = [g.stored(values[-1]), *(stored[i] for i in rng.integers(len(stored), size=2)), g.node(op("Relu"), values[-2])]
    moved(g, list(dict.fromkeys(outputs)), lambda node, graph: (len(node.op.op_type) + seed) % 5 > 0)
