"""Concats that repeat another one's inputs read its result, and give the same."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.testing import KernelBench
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.passes.nest_concats import nest_concats
from dovetail_ops_onnx.relu import Relu


def dense(layers: int, dtype: str = "float32") -> tuple[Any, list[str]]:
    """Each layer joins the input and the results of all layers before it."""
    g = dovetail.GraphBuilder()
    x = g.input("x", dtype, [2, 3])
    parts = [x, g.node(Relu(), x)]
    for _ in range(1, layers):
        parts.append(g.node(Relu(), g.node(Concat(axis=1), *parts)))
    return g, parts


def inputs_of(graph: Any) -> list[int]:
    return [len(node.inputs) for node in graph.nodes if node.op.op_type == "Concat"]


def test_layers_read_what_the_layer_before_joined() -> None:
    g, parts = dense(6)
    graph = KernelBench.typed(g.graph(parts[-1:]))
    assert inputs_of(graph) == [2, 3, 4, 5, 6]
    nested = nest_concats(graph)
    assert inputs_of(nested) == [2, 3, 4, 2, 2]
    assert nest_concats(nested) is nested


def test_whole_numbers_stay() -> None:
    """They are mostly sizes."""
    g, parts = dense(6, "int32")
    graph = KernelBench.typed(g.graph(parts[-1:]))
    assert nest_concats(graph) is graph


def test_other_axes_stay() -> None:
    g = dovetail.GraphBuilder()
    names = [g.input(name, "float32", [2, 3]) for name in "abcd"]
    four = g.node(Concat(axis=0), *names)
    graph = KernelBench.typed(g.graph([four, g.node(Concat(axis=1), *names, names[0])]))
    assert nest_concats(graph) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_results(device: str) -> None:
    g, parts = dense(6)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    (found,) = dovetail.Core(config=False).compile_model(g.model(parts[-1:]), device)(x).values()
    joined, last = x, np.maximum(x, 0)
    for _ in range(5):
        joined = np.concatenate([joined, last], 1)
        last = np.maximum(joined, 0)
    assert np.array_equal(found, last)
