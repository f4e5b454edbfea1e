"""Slices, concatenations and transposes of one value as one Gather: the same bytes; every other graph unchanged."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.passes.compose_moves import compose_moves
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.transpose import Transpose

Array = np.ndarray[Any, Any]
C = 16


def cut(g: GraphBuilder, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
    return str(g.node(Slice(), x, *(g.constant([n], "int64") for n in (start, end, axis, step))))


def rolled(g: GraphBuilder, x: str, axis: int, by: int) -> str:
    return str(g.node(Concat(axis=axis), cut(g, x, axis, by, 2**31), cut(g, x, axis, 0, by)))


def shaped(g: GraphBuilder, x: str, *dims: int) -> str:
    return str(g.node(Reshape(), x, g.constant(dims, "int64")))


def _windows(g: GraphBuilder, x: str) -> str:
    """The shifted windows of 2 x 2 of an image of 4 x 6."""
    x = rolled(g, rolled(g, shaped(g, x, 2, 4, 6, C), 1, 1), 2, 1)
    x = g.node(Transpose(perm=(0, 1, 3, 2, 4, 5)), shaped(g, x, 2, 2, 2, 3, 2, C))
    return shaped(g, x, 12, 4, C)


def _merged_patches(g: GraphBuilder, x: str) -> str:
    x = shaped(g, x, 2, 4, 6, C)
    parts = [cut(g, cut(g, x, 1, i, 2**31, 2), 2, j, 2**31, 2) for j in range(2) for i in range(2)]
    return shaped(g, g.node(Concat(axis=-1), *parts), 2, 6, 4 * C)


def _backwards(g: GraphBuilder, x: str) -> str:
    return cut(g, cut(g, shaped(g, x, 2, 4, 6, C), 1, -1, -(2**31), -2), 2, -9, 5)


def _shared(g: GraphBuilder, x: str) -> str:
    """Both readers of a value in between belong to the chain."""
    turned = g.node(Transpose(perm=(1, 0, 2)), x)
    return str(g.node(Concat(axis=1), turned, turned))


FORMS = {"windows": _windows, "merged patches": _merged_patches, "backwards": _backwards, "shared": _shared}


def composed(graph: Graph, keeps: bool = True) -> Graph:
    return compose_moves(graph, lambda node, graph: keeps)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, dtype: str) -> None:
    g = GraphBuilder()
    x = g.input("x", dtype, (2, 24, C))
    graph = fold_constants(g.graph([FORMS[name](g, x)]))
    found = composed(graph)
    validate(found)
    assert [node.op.key for node in found.nodes if not node.op.is_view] == ["Gather"]
    array = np.arange(2 * 24 * C).reshape(2, 24, C).astype(dtype)
    one, other = (fold_constants(f.replace(inputs=(), constants={**f.constants, "x": array})) for f in (found, graph))
    np.testing.assert_array_equal(one.constants[one.outputs[0]], other.constants[other.outputs[0]])


def test_two_chains_between_other_nodes() -> None:
    g = GraphBuilder()
    x = shaped(g, g.node(Relu(), _windows(g, g.input("x", "float32", (2, 24, C)))), 2, 24, C)
    found = composed(fold_constants(g.graph([_windows(g, x), x])))
    assert [node.op.key for node in found.nodes if not node.op.is_view] == ["Gather", "Relu", "Gather"]


def _one_move(g: GraphBuilder, x: str) -> list[str]:
    return [g.node(Transpose(perm=(1, 0, 2)), shaped(g, x, 24, 2, C))]


def _elements_apart(g: GraphBuilder, x: str) -> list[str]:
    return [g.node(Transpose(perm=(0, 2, 1)), cut(g, x, 1, 3, 9))]


def _a_part_of_rows(g: GraphBuilder, x: str) -> list[str]:
    return [cut(g, cut(g, x, 1, 3, 9), 2, 0, 8)]


def _short_rows(g: GraphBuilder, x: str) -> list[str]:
    return [cut(g, g.node(Transpose(perm=(0, 2, 1, 3)), shaped(g, x, 2, 24, 4, 4)), 1, 1, 3)]


def _two_values(g: GraphBuilder, x: str) -> list[str]:
    other = g.input("other", "float32", (2, 24, C))
    return [g.node(Transpose(perm=(1, 0, 2)), g.node(Concat(axis=1), x, other))]


def _read_outside(g: GraphBuilder, x: str) -> list[str]:
    first = cut(g, x, 1, 3, 9)
    return [cut(g, first, 0, 0, 1), g.node(Relu(), first)]


def _an_output(g: GraphBuilder, x: str) -> list[str]:
    first = cut(g, x, 1, 3, 9)
    return [cut(g, first, 0, 0, 1), first]


@pytest.mark.parametrize(
    "build", [_one_move, _elements_apart, _a_part_of_rows, _short_rows, _two_values, _read_outside, _an_output]
)
def test_what_stays(build: Any) -> None:
    g = GraphBuilder()
    graph = fold_constants(g.graph(build(g, g.input("x", "float32", (2, 24, C)))))
    assert composed(graph) is graph


def test_moves_of_a_second_part() -> None:
    """Whose node leaves out the first."""
    g = GraphBuilder()
    g.node(Split(axis=1, num_outputs=2), g.input("x", "float32", (2, 24, C)), outputs=["", "part"])
    found = composed(fold_constants(g.graph([g.node(Transpose(perm=(1, 0, 2)), cut(g, "part", 1, 3, 9))])))
    assert [node.op.key for node in found.nodes if not node.op.is_view] == ["Split", "Gather"]


def test_devices_without_a_kernel_keep_the_nodes() -> None:
    g = GraphBuilder()
    graph = fold_constants(g.graph([_windows(g, g.input("x", "float32", (2, 24, C)))]))
    assert composed(graph, keeps=False) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_plans_for_other_sizes(device: str) -> None:
    g = GraphBuilder()
    x = g.node(Relu(), g.input("x", "float32", ("N", 4, C)))
    y = g.node(Transpose(perm=(1, 0, 2)), rolled(g, x, 1, 1))
    compiled = dovetail.Core(config=False).compile_model(g.model([g.node(Relu(), y)]), device)
    for n in (2, 3, 5):
        array = np.random.default_rng(n).standard_normal((n, 4, C)).astype(np.float32)
        (found,) = compiled({"x": array}).values()
        np.testing.assert_array_equal(found, np.maximum(np.roll(array, -1, 1), 0).swapaxes(0, 1))
    assert compiled.report().passes[-1].name == "take_over"
