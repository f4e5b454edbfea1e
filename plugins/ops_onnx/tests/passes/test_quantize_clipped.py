"""Clip of stored numbers as Clip of real ones: which nodes are left, and the same stored numbers."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from dovetail.graph import GraphBuilder
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx import find
from dovetail_ops_onnx.passes.quantize_clipped import quantize_clipped

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

MOVED = ["Clip", "QuantizeLinear"]
LEFT = ["QuantizeLinear", "Clip"]


def op(name, **attributes):
    return find(name, 21)(**attributes)


def clipped(zero, limits, scale=0.013, x="float32", others=False, keeps=lambda node, graph: True):
    """Kinds of the nodes after the pass, whose stored numbers must be those before."""
    g = GraphBuilder()
    scale = np.asarray(scale, x)
    stored = g.node(op("QuantizeLinear"), g.input("x", x, (50, 3)), g.constant(scale), g.constant(zero))
    limits = ["" if limit is None else g.constant(np.asarray(limit, zero.dtype)) for limit in limits]
    result = g.node(op("Clip"), stored, *limits)
    before = fold_constants(g.graph([result, stored] if others else [result]))
    after = quantize_clipped(before, keeps)
    validate(after)
    values = (np.arange(-75, 75).reshape(50, 3) / 2 * np.max(scale)).astype(x)
    values.flat[:2] = np.inf, -np.inf
    for one, other in zip(evaluated(before, {"x": values}), evaluated(after, {"x": values}), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return [node.op.op_type for node in after.nodes]


@pytest.mark.parametrize("scale", [0.013, 1 / 3, [2.0**-9]])
@pytest.mark.parametrize(
    ("zero", "limits"),
    [
        (np.int8(0), (-8, 7)),
        (np.int8(-3), (-4, 3)),
        (np.uint8(0), (0, 15)),
        (np.uint8(17), (None, 31)),
        (np.int8(0), (-7, None)),
        (np.int8(0), (5, -5)),
    ],
)
def test_same_numbers(zero, limits, scale):
    assert clipped(zero, limits, scale) == MOVED


def test_stored_numbers_that_others_read_stay():
    assert clipped(np.int8(0), (-8, 7), others=True) == ["QuantizeLinear", "Clip", "QuantizeLinear"]


@pytest.mark.parametrize(
    "change",
    [{"x": "float16", "scale": 0.013}, {"scale": [0.5, 1, 2], "zero": np.int8([0, 0, 0])}],
)
def test_other_forms_stay(change):
    assert clipped(**{"zero": np.int8(0), "limits": (-8, 7), **change}) == LEFT


def test_a_device_without_clip_keeps_the_form():
    assert clipped(np.int8(0), (-8, 7), keeps=lambda node, graph: node.op.op_type != "Clip") == LEFT
