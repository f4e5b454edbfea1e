"""Reductions over axes of size 1 are views; all others stay."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import Graph, GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.passes.simplify_reductions import simplify_reductions
from dovetail_ops_onnx.reduce_l1 import ReduceL1
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu

KINDS = (ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum)


def reduced(op: Any, dims: tuple[int, ...], axes: list[int] | None, dtype: str = "float32") -> Graph:
    g = GraphBuilder()
    x = g.input("x", dtype, dims)
    y = g.node(op, x) if axes is None else g.node(op, x, g.constant(np.array(axes, np.int64)))
    return simplify_reductions(fold_constants(g.graph([y])))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dims", "axes", "left"),
    [
        ((2, 1, 3, 1), [1, -1], "Reshape"),
        ((2, 1, 3, 1), [1, 2], "Reduce"),
        ((1, 1), None, "Reshape"),
        ((1, 2), None, "Reduce"),
        ((0, 1), [1], "Reshape"),
        ((0, 1), [0], "Reduce"),
        ((), None, "Reshape"),
    ],
)
def test_axes_of_one_element(kind: Any, keepdims: bool, dims: tuple[int, ...], axes: list[int] | None, left: str) -> None:
    graph = reduced(kind(keepdims=keepdims), dims, axes)
    assert [node.op.op_type.startswith(left) for node in graph.nodes] == [True]


def test_what_computes_something_with_one_element_stays() -> None:
    assert [node.op.key for node in reduced(ReduceL1(), (3, 1), [1]).nodes] == ["ReduceL1"]


def test_axes_that_are_not_constant() -> None:
    g = GraphBuilder()
    graph = g.graph([g.node(ReduceSum(), g.input("x", "float32", (1, 1)), g.input("axes", "int64", (1,)))])
    assert simplify_reductions(graph) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_results(device: str, dtype: str) -> None:
    x = np.array([[[np.nan, -0.0, 3]]] if dtype == "float32" else [[[-1, 0, 7]]], dtype)
    g = GraphBuilder()
    start = g.node(Relu(), g.input("x", dtype, x.shape)) if dtype == "float32" else g.input("x", dtype, x.shape)
    y = g.node(ReduceMean(keepdims=False), start, g.constant(np.array([1])))
    with dovetail.Core(config=False).compile_model(g.model([y]), device) as compiled:
        found = compiled({"x": x})[0]
        kernels = [node.kernel for node in compiled.report().nodes]
    np.testing.assert_array_equal(found, (np.maximum(x, 0) if dtype == "float32" else x)[:, 0])
    assert "ref" not in kernels


def means(*steps: tuple[list[int] | None, bool], dtype: str = "float32", read_twice: bool = False) -> Graph:
    g = GraphBuilder()
    y = g.input("x", dtype, (2, 3, 4, 5))
    between: list[str] = []
    for axes, keepdims in steps:
        given = [] if axes is None else [g.constant(np.array(axes, np.int64))]
        y = g.node(ReduceMean(keepdims=keepdims), y, *given)
        between.append(y)
    return fold_constants(g.graph([y, *([g.node(Relu(), between[0])] if read_twice else [])]))


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([([2], True), ([3], True)], 1),
        ([([-1], True), ([2], False)], 2),
        ([([1], True), ([2], True), ([0], True)], 1),
        ([([1, 2], True), (None, True)], 1),
        ([([2], False), ([2], True)], 2),  # axis 2 of the second is another one
    ],
)
def test_means_of_means(steps: list[tuple[list[int] | None, bool]], left: int) -> None:
    graph = means(*steps)
    found = simplify_reductions(graph)
    assert [node.op.key for node in found.nodes] == ["ReduceMean"] * left
    x = np.random.default_rng(4).standard_normal((2, 3, 4, 5)).astype(np.float32)
    done = [fold_constants(one.replace(inputs=(), constants={**one.constants, "x": x})) for one in (found, graph)]
    np.testing.assert_allclose(*(one.constants[one.outputs[0]] for one in done), rtol=1e-5, atol=1e-7)


def test_means_that_are_read_twice_or_of_integers_stay() -> None:
    for graph in (means(([2], True), ([3], True), read_twice=True), means(([2], True), ([3], True), dtype="int32")):
        assert simplify_reductions(graph) is graph
