"""Pads folded into convolutions and pooling, and only where no result changes."""

from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.pad import Pad, Pad_2
from dovetail_ops_onnx.passes.fold_pad import fold_pad
from dovetail_ops_onnx.relu import Relu

SPATIAL = (0, 0, 1, 0, 0, 0, 2, 1)
"""One row above and two below, one column to the right, of [N, C, H, W]."""


def graph_of(
    op: Operator,
    pads: tuple[int, ...] = SPATIAL,
    *,
    fill: float | None = None,
    mode: str = "constant",
    axes: tuple[int, ...] | None = None,
    relu: bool = False,
    also: bool = False,
) -> Graph:
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 3, 5, 6))
    value = g.node(Relu(), x) if relu else x
    more = [g.constant(fill, "float32") if fill is not None else ""]
    more += [g.constant(axes, "int64")] if axes is not None else []
    padded = g.node(Pad(mode=mode), value, g.constant(pads, "int64"), *more)
    weights = [g.constant(np.random.default_rng(1).standard_normal((4, 3, 3, 2)), "float32")] if isinstance(op, Conv) else []
    y = g.node(op, padded, *weights, outputs=1)
    return fold_constants(g.graph([y, padded] if also else [y]))


def keys(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


def value(graph: Graph, x: Any) -> Any:
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    return done.constants[graph.outputs[0]]


INF = float("-inf")
FOLDED: dict[str, tuple[Operator, dict[str, Any]]] = {
    "conv": (Conv(), {}),
    "conv with pads and strides": (Conv(pads=(1, 0, 0, 1), strides=(2, 1), dilations=(1, 2)), {"fill": 0.0}),
    "conv that is VALID": (Conv(auto_pad="VALID"), {}),
    "conv, some axes": (Conv(), {"pads": (1, 2, 3, 0), "axes": (-1, 2)}),
    "average": (AveragePool(kernel_shape=(3, 2)), {}),
    "average that counts its pads": (AveragePool(kernel_shape=(4, 4), pads=(1, 1, 1, 1), count_include_pad=True), {}),
    "greatest": (MaxPool(kernel_shape=(4, 2), strides=(2, 2)), {"fill": INF}),
    "greatest with pads": (MaxPool(kernel_shape=(4, 3), pads=(1, 1, 0, 1)), {"fill": INF}),
    "greatest behind relu": (MaxPool(kernel_shape=(3, 2)), {"relu": True}),
}


@pytest.mark.parametrize("name", FOLDED)
def test_pads_fold(name: str, rng: np.random.Generator) -> None:
    op, options = FOLDED[name]
    graph = graph_of(op, **options)
    folded = drop_dead_nodes(fold_pad(graph))
    assert "Pad" not in keys(folded)
    assert len(folded.nodes[-1].origins) == 2
    x = rng.standard_normal((2, 3, 5, 6)).astype(np.float32)
    x[0, 0, 2, 3] = np.nan
    np.testing.assert_allclose(value(folded, x), value(graph, x), rtol=1e-6, atol=1e-6)


STAYS: dict[str, tuple[Operator, dict[str, Any]]] = {
    "ones round a conv": (Conv(), {"fill": 1.0}),
    "reflection": (Conv(), {"mode": "reflect"}),
    "channels": (AveragePool(kernel_shape=(2, 2)), {"pads": (0, 1, 0, 0, 0, 0, 0, 0)}),
    "batch": (Conv(), {"pads": (1, 0, 0, 0, 0, 0, 0, 0)}),
    "cut off": (Conv(), {"pads": (0, 0, -1, 0, 0, 0, 1, 0)}),
    "same": (Conv(auto_pad="SAME_UPPER"), {}),
    "average that does not count its pads": (AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), {}),
    "average, rounded up": (AveragePool(kernel_shape=(3, 3), strides=(2, 2), ceil_mode=True), {}),
    "greatest with zeros": (MaxPool(kernel_shape=(3, 2)), {}),
    "greatest with the least number": (MaxPool(kernel_shape=(3, 2)), {"fill": float(np.finfo(np.float32).min)}),
    "greatest in the pads alone": (MaxPool(kernel_shape=(2, 2)), {"fill": INF}),
    "greatest in gaps": (MaxPool(kernel_shape=(2, 2), dilations=(3, 2)), {"fill": INF}),
}


@pytest.mark.parametrize("name", STAYS)
def test_other_pads_stay(name: str) -> None:
    op, options = STAYS[name]
    graph = graph_of(op, **options)
    assert fold_pad(graph) is graph


def test_a_pad_that_is_read_elsewhere_is_kept_for_that() -> None:
    folded = drop_dead_nodes(fold_pad(graph_of(Conv(), also=True)))
    assert sorted(keys(folded)) == ["Conv", "Pad"]
    assert folded.nodes[-1].inputs[0] == "x" or folded.nodes[0].inputs[0] == "x"


def test_what_is_no_pad_stays(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 3, 5, 6))
    weights = [[g.constant(rng.standard_normal(dims), "float32") for dims in ((3, 3, 1, 1), (3,))] for _ in range(2)]
    graph = fold_constants(g.graph([g.node(Conv(), g.node(Conv(), x, *weights[0]), *weights[1])]))
    assert fold_pad(graph) is graph


def test_pads_of_older_versions(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 3, 5, 6))
    w = g.constant(rng.standard_normal((4, 3, 3, 2)), "float32")
    graph = fold_constants(g.graph([g.node(Conv(), g.node(Pad_2(), x, g.constant(np.array(SPATIAL))), w)]))
    folded = drop_dead_nodes(fold_pad(graph))
    assert keys(folded) == ["Conv"]
    given = rng.standard_normal((2, 3, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(value(folded, given), value(graph, given), rtol=1e-6, atol=1e-6)
