"""The only slice of an axis is a view; all other slices stay."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError
from dovetail.graph import Graph, GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.passes.simplify_gathers import simplify_gathers
from dovetail_ops_onnx.relu import Relu


def gathered(dims: tuple[int | str, ...], axis: int, index: Any) -> Graph:
    g = GraphBuilder()
    y = g.node(Gather(axis=axis), g.input("x", "float32", dims), g.constant(np.array(index, np.int64)))
    return g.graph([g.node(Relu(), y)])


@pytest.mark.parametrize(
    ("dims", "axis", "index", "left"),
    [
        ((1, 2, 3), 0, 0, "Reshape"),
        ((2, 1, 3), -2, -1, "Reshape"),
        ((2, 1), 1, [[0]], "Reshape"),
        ((1,), 0, 0, "Reshape"),
        ((0, 1), 1, 0, "Reshape"),
        ((2, 3), 0, 0, "Gather"),
        ((1, 3), 0, [0, 0], "Gather"),
        ((1, 3), 0, 1, "Gather"),
    ],
)
def test_one_index_of_an_axis_of_one_element(dims: tuple[int, ...], axis: int, index: Any, left: str) -> None:
    graph = simplify_gathers(fold_constants(gathered(dims, axis, index)))
    assert [node.op.key for node in graph.nodes] == [left, "Relu"]


def test_an_index_that_is_not_constant() -> None:
    g = GraphBuilder()
    graph = g.graph([g.node(Gather(), g.input("x", "float32", (1, 2)), g.input("i", "int64", ()))])
    assert simplify_gathers(graph) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_sizes_of_one_element_and_of_more_in_turn(device: str) -> None:
    """Plans for further sizes take over others, but not the view where the axis has more elements."""
    graph, rng = gathered(("batch", "length", 4), 0, -1), np.random.default_rng(0)
    with dovetail.Core().compile_model(dovetail.Model(graph), device) as compiled:
        for batch, length in ((1, 5), (2, 5), (3, 1), (1, 1), (1, 7), (4, 7)):
            x = rng.standard_normal((batch, length, 4), dtype=np.float32)
            np.testing.assert_array_equal(next(iter(compiled(x).values())), np.maximum(x[-1], 0))
            gathers = [node.op for node in compiled.report({"x": x.shape}).nodes].count("Gather")
            assert gathers == (batch > 1)


def test_an_index_out_of_range_is_an_error() -> None:
    with dovetail.Core().compile_model(dovetail.Model(gathered((1, 2), 0, 1)), "NUMPY") as compiled, pytest.raises(InferError):
        compiled(np.zeros((1, 2), np.float32))
