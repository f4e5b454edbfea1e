"""Elementwise nodes computed before the reshapes that they read, with the same numbers; every other graph unchanged."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.hard_swish import HardSwish
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes.compute_before_views import compute_before_views
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.top_k import TopK
from dovetail_ops_onnx.transpose import Transpose

Array = np.ndarray[Any, Any]


def run(graph: Graph, arrays: dict[str, Array]) -> list[Array]:
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, **arrays}))
    return [done.constants[name] for name in done.outputs]


def moved(g: GraphBuilder, *outputs: str) -> Graph:
    graph = fold_constants(g.graph([*outputs]))
    found = compute_before_views(graph)
    validate(found)
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal(graph.types[name].dims).astype(np.float32) for name in graph.inputs}
    for one, other in zip(run(found, arrays), run(graph, arrays), strict=True):
        np.testing.assert_array_equal(one, other)
    return found


def product(g: GraphBuilder, name: str = "x") -> str:
    x = g.input(name, "float32", (2, 6, 3))
    return str(g.node(MatMul(), x, g.constant(np.arange(12, dtype=np.float32).reshape(3, 4))))


def shaped(g: GraphBuilder, x: str, *dims: int) -> str:
    return str(g.node(Reshape(), x, g.constant(dims, "int64")))


def kinds(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


def test_chains_of_views_and_nodes() -> None:
    g = GraphBuilder()
    y = g.node(HardSwish(), shaped(g, g.node(Flatten(axis=2), product(g)), 2, 2, 3, 4))
    y = g.node(Mul(), shaped(g, y, 4, 12), g.constant(np.float32(3)))
    graph = moved(g, g.node(Transpose(), y))
    assert kinds(graph)[:3] == ["MatMul", "HardSwish", "Mul"]
    assert kinds(graph)[-1] == "Transpose"


@pytest.mark.parametrize("turned", [False, True])
def test_residuals(turned: bool) -> None:
    """The residual gets a view, before the product; a product of one axis more or less, too."""
    g = GraphBuilder()
    rest = g.input("rest", "float32", (3, 4, 4))
    y = shaped(g, product(g), 3, 4, 4)
    y = g.node(Sub(), *((rest, y) if turned else (y, rest)))
    graph = moved(g, g.node(Relu(), y))
    assert [kind for kind in kinds(graph) if kind != "Reshape"] == ["MatMul", "Sub", "Relu"]
    at = {node.op.key: i for i, node in enumerate(graph.nodes)}
    sub = next(node for node in graph.nodes if node.op.key == "Sub")
    other = next(name for name in sub.inputs if name in graph.producers and graph.producers[name].op.key == "Reshape")
    assert graph.nodes.index(graph.producers[other]) < at["MatMul"]


def test_residuals_that_have_the_shape_already() -> None:
    g = GraphBuilder()
    first = g.node(Relu(), product(g))
    y = g.node(Add(), shaped(g, product(g, "z"), 12, 4), shaped(g, first, 12, 4))
    graph = moved(g, g.node(Relu(), y))
    add = next(node for node in graph.nodes if node.op.key == "Add")
    assert first in add.inputs


def test_flat_residuals_need_no_constant() -> None:
    """A plan for other sizes takes over one that has no constants of sizes."""
    g = GraphBuilder()
    flat = g.node(
        MatMul(), g.node(Flatten(axis=2), g.input("x", "float32", (2, 6, 3))), g.constant(np.eye(3, 4, dtype=np.float32))
    )
    y = g.node(Add(), shaped(g, flat, 2, 6, 4), g.input("rest", "float32", (2, 6, 4)))
    graph = moved(g, y)
    assert kinds(graph) == ["Flatten", "Flatten", "MatMul", "Add", "Reshape"]


def test_rows() -> None:
    g = GraphBuilder()
    y = g.node(Add(), g.constant(np.arange(4, dtype=np.float32)), shaped(g, product(g), 3, 4, 4))
    assert kinds(moved(g, y)) == ["MatMul", "Add", "Reshape"]


def _row_of_another_axis(g: GraphBuilder) -> list[str]:
    return [g.node(Add(), shaped(g, product(g), 3, 2, 8), g.constant(np.arange(8, dtype=np.float32)))]


def _broadcast(g: GraphBuilder) -> list[str]:
    return [g.node(Add(), shaped(g, product(g), 3, 4, 4), g.input("rest", "float32", (4, 4)))]


def _grows(g: GraphBuilder) -> list[str]:
    return [g.node(Add(), shaped(g, product(g), 1, 48), g.input("rest", "float32", (2, 48)))]


def _read_twice(g: GraphBuilder) -> list[str]:
    view = shaped(g, product(g), 3, 4, 4)
    return [g.node(Relu(), view), g.node(HardSwish(), view)]


def _an_output(g: GraphBuilder) -> list[str]:
    first = product(g)
    return [g.node(Relu(), shaped(g, first, 3, 4, 4)), first]


def _an_input(g: GraphBuilder) -> list[str]:
    return [g.node(Relu(), shaped(g, g.input("x", "float32", (2, 6)), 3, 4))]


def _twice_in_one(g: GraphBuilder) -> list[str]:
    view = shaped(g, product(g), 3, 4, 4)
    return [g.node(Mul(), view, view)]


def _latest_without_view(g: GraphBuilder) -> list[str]:
    early = shaped(g, product(g), 3, 4, 4)
    late = g.node(MatMul(), g.input("z", "float32", (3, 4, 3)), g.constant(np.eye(3, 4, dtype=np.float32)))
    return [g.node(Add(), early, late)]


@pytest.mark.parametrize(
    "build",
    [_row_of_another_axis, _broadcast, _grows, _read_twice, _an_output, _an_input, _twice_in_one, _latest_without_view],
)
def test_what_stays(build: Any) -> None:
    g = GraphBuilder()
    graph = fold_constants(g.graph(build(g)))
    assert compute_before_views(graph) is graph


def test_a_node_without_its_first_output() -> None:
    g = GraphBuilder()
    _, indices = g.node(TopK(), shaped(g, product(g), 3, 4, 4), g.constant([2], "int64"), outputs=2)
    graph = fold_constants(g.graph([indices]))
    *before, last = graph.nodes
    graph = graph.replace(nodes=(*before, replace(last, outputs=("", indices))))
    assert compute_before_views(graph) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_plans_for_other_sizes(device: str) -> None:
    g = GraphBuilder()
    x, rest = g.input("x", "float32", ("N", 6, 3)), g.input("rest", "float32", ("N", 6, 4))
    y = g.node(MatMul(), g.node(Reshape(), x, g.constant([-1, 3], "int64")), g.constant(np.eye(3, 4, dtype=np.float32)))
    y = g.node(Relu(), g.node(Add(), g.node(Reshape(), y, g.constant([-1, 6, 4], "int64")), rest))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), device)
    for n in (2, 3, 5):
        given = np.random.default_rng(n).standard_normal((2, n, 6, 4)).astype(np.float32)
        (found,) = compiled({"x": given[0, ..., :3], "rest": given[1]}).values()
        expected = given[1].copy()
        expected[..., :3] += given[0, ..., :3]
        np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-6)
    assert compiled.report().passes[-1].name == "take_over"
