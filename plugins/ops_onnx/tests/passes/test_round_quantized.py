"""QuantizeLinear and DequantizeLinear of 16 bits as steps on real numbers: which nodes are left, and the same bits."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from dovetail.graph import GraphBuilder
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx import find
from dovetail_ops_onnx.passes.round_quantized import round_quantized

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

STEPS = ["Div", "Round", "Clip", "Mul"]


def op(name, **attributes):
    return find(name, 21)(**attributes)


class Builder(GraphBuilder):
    def pair(self, x, zero, scale=0.013, back=0.0):
        """A value stored and real again, by default with the same scale."""
        stored = self.node(op("QuantizeLinear"), x, self.constant(np.float32(scale)), self.constant(zero))
        return self.node(op("DequantizeLinear"), stored, self.constant(np.float32(back or scale)), self.constant(zero))


def rounded(g, outputs, keeps=lambda node, graph: True):
    """The graph after the pass, which must give the same as before: of halves, values out of range and infinities too."""
    before = fold_constants(g.graph(outputs))
    after = round_quantized(before, keeps)
    validate(after)
    dims = before.types["x"].dims
    x = (np.random.default_rng(3).integers(-90_000, 90_000, dims) / 2 * 0.013).astype(np.float32)
    x.flat[:2] = np.inf, -np.inf
    for one, other in zip(evaluated(before, {"x": x}), evaluated(after, {"x": x}), strict=True):
        np.testing.assert_array_equal(one, other)
    return after


def kinds(graph):
    return [node.op.op_type for node in graph.nodes]


@pytest.mark.parametrize("zero", [np.uint16(0), np.uint16(31_003), np.uint16(65_535), np.int16(0), np.int16(-32_768)])
@pytest.mark.parametrize("scale", [0.013, 2.0**-9, 1.1754944e-11])
def test_same_numbers(zero, scale):
    g = Builder()
    after = rounded(g, [g.pair(g.input("x", "float32", (300, 401)), zero, scale)])
    assert kinds(after) == STEPS


@pytest.mark.parametrize(
    ("move", "attributes", "rest"),
    [("Transpose", {"perm": (1, 0)}, []), ("Reshape", {}, [np.array([-1], np.int64)]), ("Split", {"num_outputs": 1}, [])],
)
def test_a_moved_value_is_rounded_once(move, attributes, rest):
    g = Builder()
    first = g.pair(g.input("x", "float32", (30, 41)), np.uint16(7))
    second = g.pair(g.node(op(move, **attributes), first, *map(g.constant, rest)), np.uint16(7))
    assert kinds(rounded(g, [g.node(op("Neg"), second)])) == [*STEPS, move, "Neg"]


def test_other_scales_and_joins_round_again():
    g = Builder()
    x = g.input("x", "float32", (30, 41))
    first = g.pair(x, np.int16(0))
    moved = g.node(op("Transpose"), first)
    joined = g.node(op("Concat", axis=0), first, x)
    after = rounded(g, [g.node(op("Neg"), g.pair(moved, np.int16(0), 0.014)), g.node(op("Neg"), g.pair(joined, np.int16(0)))])
    assert kinds(after).count("Round") == 3


def test_a_result_of_the_graph_keeps_its_name():
    g = Builder()
    first = g.pair(g.input("x", "float32", (3, 4)), np.int16(0))
    second = g.pair(first, np.int16(0))
    after = rounded(g, [second])
    assert after.outputs == (second,)


@pytest.mark.parametrize("case", ["read", "other scale", "bytes", "channels", "no kernel"])
def test_what_stays(case):
    g = Builder()
    x, zero = g.input("x", "float32", (3, 4)), np.uint8(3) if case == "bytes" else np.uint16(3)
    scale = g.constant(np.full(4 if case == "channels" else (), 0.02, np.float32))
    zeros = g.constant(np.full(4 if case == "channels" else (), zero))
    stored = g.node(op("QuantizeLinear"), x, scale, zeros)
    other = g.constant(np.float32(0.03)) if case == "other scale" else scale
    real = g.node(op("DequantizeLinear"), stored, other, zeros)
    outputs = [real, stored] if case == "read" else [real]
    after = rounded(g, outputs, lambda node, graph: case != "no kernel" or node.op.op_type != "Round")
    assert kinds(after) == ["QuantizeLinear", "DequantizeLinear"]
