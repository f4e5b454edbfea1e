"""Transposes that cancel, move nothing, or go into a product."""

from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.drop_identities import drop_identities
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.passes.simplify_transposes import simplify_transposes
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.transpose import Transpose


def simplified(g: GraphBuilder, *outputs: str, keeps: bool = True) -> Graph:
    graph = simplify_transposes(fold_constants(g.graph(outputs)), lambda node, graph: keeps)
    return drop_dead_nodes(drop_identities(fold_constants(graph)))


def keys(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


def value(graph: Graph, **inputs: Any) -> list[Any]:
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, **inputs}))
    return [done.constants[name] for name in graph.outputs]


@pytest.mark.parametrize(
    ("perms", "left"),
    [
        (((0, 2, 1, 3), (0, 2, 1, 3)), []),
        (((1, 2, 3, 0), (1, 2, 3, 0), (2, 3, 0, 1)), []),
        (((0, 2, 1, 3), (0, 1, 3, 2)), ["Transpose"]),
        (((3, 2, 1, 0), (0, 1, 3, 2), (3, 0, 1, 2)), ["Transpose"]),
    ],
)
def test_chains(rng: np.random.Generator, perms: tuple[tuple[int, ...], ...], left: list[str]) -> None:
    g = GraphBuilder()
    y = g.node(Relu(), g.input("x", "float32", (2, 3, 4, 5)))
    for perm in perms:
        y = g.node(Transpose(perm=perm), y)
    graph = simplified(g, g.node(Relu(), y))
    assert keys(graph) == ["Relu", *left, "Relu"]
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    want = np.maximum(x, 0)
    for perm in perms:
        want = want.transpose(perm)
    np.testing.assert_array_equal(value(graph, x=x)[0], want)


def test_readers_of_what_cancels_read_the_first_value(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    first = g.node(Relu(), g.input("x", "float32", (2, 3, 4)))
    back = g.node(Transpose(perm=(2, 0, 1)), g.node(Transpose(perm=(1, 2, 0)), first))
    graph = g.graph([g.node(Relu(), back), back])
    found = drop_dead_nodes(simplify_transposes(fold_constants(graph), lambda node, graph: True))
    # An output of the graph keeps its name, as a view.
    assert keys(found) == ["Relu", "Reshape", "Relu"]
    only = drop_dead_nodes(simplify_transposes(fold_constants(g.graph(graph.outputs[:1])), lambda node, graph: True))
    assert keys(only) == ["Relu", "Relu"]
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    for result in (*value(found, x=x), *value(only, x=x)):
        np.testing.assert_array_equal(result, np.maximum(x, 0))


def test_a_value_in_the_middle_of_a_chain_stays_what_it_is(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    first = g.node(Transpose(perm=(1, 0, 2)), g.node(Relu(), g.input("x", "float32", (2, 3, 4))))
    graph = simplified(g, g.node(Transpose(perm=(1, 0, 2)), first), first)
    assert keys(graph) == ["Relu", "Transpose"]
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    back, turned = value(graph, x=x)
    np.testing.assert_array_equal(back, np.maximum(x, 0))
    np.testing.assert_array_equal(turned, np.maximum(x, 0).transpose(1, 0, 2))


@pytest.mark.parametrize("dims", [(1, 3, 1, 5), (3, 1, 5, 1), (0, 1, 4, 1)])
def test_axes_of_size_1_make_a_view(rng: np.random.Generator, dims: tuple[int, ...]) -> None:
    g = GraphBuilder()
    y = g.node(Relu(), g.node(Transpose(perm=(0, 2, 1, 3)), g.input("x", "float32", dims)))
    graph = simplified(g, y)
    assert keys(graph) == ["Reshape", "Relu"]
    x = rng.standard_normal(dims).astype(np.float32)
    np.testing.assert_array_equal(value(graph, x=x)[0], np.maximum(x, 0).transpose(0, 2, 1, 3))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("gemm", [None, Gemm(alpha=0.5, transB=True)])
def test_matrices_that_are_turned_for_a_product(rng: np.random.Generator, left: bool, right: bool, gemm: Gemm | None) -> None:
    a, b = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((4, 5)).astype(np.float32)
    given_a, given_b = a.T if left else a, b.T if right else b
    g = GraphBuilder()
    x, w = g.input("x", "float32", given_a.shape), g.input("w", "float32", given_b.shape)
    x = g.node(Transpose(), x) if left else x
    w = g.node(Transpose(perm=(1, 0)), w) if right else w
    if gemm is not None:
        w = g.node(Transpose(), w)
    graph = simplified(g, g.node(gemm or MatMul(), x, w))
    assert keys(graph) == (["MatMul"] if gemm is None and not (left or right) else ["Gemm"])
    want = (1.0 if gemm is None else 0.5) * a.astype(np.float64) @ b
    np.testing.assert_allclose(value(graph, x=given_a, w=given_b)[0], want, rtol=1e-5, atol=1e-6)


def test_a_device_without_a_gemm_keeps_the_transpose() -> None:
    g = GraphBuilder()
    w = g.node(Transpose(), g.input("w", "float32", (5, 4)))
    assert keys(simplified(g, g.node(MatMul(), g.input("x", "float32", (3, 4)), w), keeps=False)) == ["Transpose", "MatMul"]


def test_batches_and_integers_stay() -> None:
    g = GraphBuilder()
    x, w = g.input("x", "float32", (2, 3, 4)), g.node(Transpose(perm=(0, 2, 1)), g.input("w", "float32", (2, 5, 4)))
    n, m = g.input("n", "int32", (3, 4)), g.node(Transpose(), g.input("m", "int32", (5, 4)))
    graph = simplified(g, g.node(MatMul(), x, w), g.node(MatMul(), n, m))
    assert sorted(keys(graph)) == ["MatMul", "MatMul", "Transpose", "Transpose"]
