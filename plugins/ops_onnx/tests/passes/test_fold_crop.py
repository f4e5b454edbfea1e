"""Slices folded into the convolutions before them, and only where no result changes."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.passes.fold_crop import fold_crop
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.slice import Slice

ALL = 2**63 - 1
X = (2, 3, 9, 8)


def graph_of(op: Operator, starts: Any, ends: Any, axes: Any = (2, 3), steps: Any = None, also: bool = False) -> Graph:
    g = GraphBuilder()
    x = g.input("x", "float32", X)
    dims = (3, 4, 3, 3) if isinstance(op, ConvTranspose) else (4, 3, 3, 3)
    y = g.node(op, x, g.constant(np.random.default_rng(1).standard_normal(dims), "float32"), outputs=1)
    bounds = [g.constant(one, "int64") if one is not None else "" for one in (starts, ends, axes, steps)]
    cut = g.node(Slice(), y, *bounds, outputs=1)
    return fold_constants(g.graph([cut, g.node(Relu(), y)] if also else [cut]))


def value(graph: Graph, x: Any) -> Any:
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    return done.constants[graph.outputs[0]]


PADDED = Conv(pads=(2, 2, 2, 2))
FOLDED: dict[str, tuple[Operator, Any, Any, dict[str, Any]]] = {
    "the end": (PADDED, (0, 0), (-2, -1), {}),
    "the begin": (PADDED, (2, 1), (ALL, ALL), {}),
    "both, one axis": (PADDED, (1,), (-2,), {"axes": (-1,)}),
    "all axes": (PADDED, (0, 0, 0, 1), (ALL, ALL, -1, -2), {"axes": None}),
    "steps": (PADDED, (1, 0), (-1, 2**31 - 1), {"steps": (1, 1)}),
    "strides": (Conv(pads=(4, 1, 5, 2), strides=(2, 1), dilations=(1, 2)), (2, 0), (-2, -1), {}),
    "strides that leave pixels unread": (Conv(pads=(3, 3, 4, 4), strides=(3, 2)), (1, 1), (-1, -2), {}),
    "transposed": (ConvTranspose(strides=(2, 3), output_padding=(1, 2)), (1, 0), (-1, -2), {}),
    "transposed with pads": (ConvTranspose(pads=(1, 0, 0, 1)), (1, 2), (-2, -1), {}),
}


@pytest.mark.parametrize("name", FOLDED)
def test_slices_fold(name: str, rng: np.random.Generator) -> None:
    op, starts, ends, options = FOLDED[name]
    graph = graph_of(op, starts, ends, **options)
    folded = drop_dead_nodes(fold_crop(graph))
    assert [node.op.key for node in folded.nodes] == [op.key]
    assert len(folded.nodes[-1].origins) == 2
    x = rng.standard_normal(X).astype(np.float32)
    x[0, 0, 2, 3], x[1, 1, 0, 0], x[1, 2, 8, 7] = np.nan, np.inf, -np.inf
    np.testing.assert_allclose(value(folded, x), value(graph, x), rtol=1e-5, atol=1e-5)


STAYS: dict[str, tuple[Operator, Any, Any, dict[str, Any]]] = {
    "more than the pads": (PADDED, (3, 0), (ALL, ALL), {}),
    "more than the pads hold strides": (Conv(pads=(3, 0, 0, 0), strides=(2, 1)), (2, 0), (ALL, ALL), {}),
    "counted from the begin": (PADDED, (0, 0), (9, ALL), {}),
    "counted from the end": (PADDED, (-9, 0), (ALL, ALL), {}),
    "every second": (PADDED, (0, 0), (-1, -1), {"steps": (2, 1)}),
    "channels": (PADDED, (1, 0), (ALL, -1), {"axes": (1, 2)}),
    "same": (Conv(auto_pad="SAME_UPPER"), (0, 0), (-1, -1), {}),
    "nothing is left": (Conv(pads=(9, 9, 9, 9)), (8, 0), (-17, ALL), {}),
    "transposed, a whole window": (ConvTranspose(), (3, 0), (ALL, ALL), {}),
    "transposed to a shape": (ConvTranspose(output_shape=(11, 10)), (1, 0), (ALL, ALL), {}),
    "read elsewhere": (PADDED, (0, 0), (-1, -1), {"also": True}),
}


@pytest.mark.parametrize("name", STAYS)
def test_other_slices_stay(name: str) -> None:
    op, starts, ends, options = STAYS[name]
    graph = graph_of(op, starts, ends, **options)
    assert fold_crop(graph) is graph


def test_a_result_that_is_an_output_stays() -> None:
    g = GraphBuilder()
    x, weights = g.input("x", "float32", X), g.constant(np.ones((4, 3, 3, 3)), "float32")
    y = g.node(PADDED, x, weights, outputs=1)
    cut = g.node(Slice(), y, g.constant((1,), "int64"), g.constant((ALL,), "int64"), g.constant((2,), "int64"), outputs=1)
    graph = fold_constants(g.graph([y, cut]))
    assert fold_crop(graph) is graph


def test_other_sizes_and_what_is_fused(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", ("N", 3, "T"))
    weights = rng.standard_normal((5, 3, 3)).astype(np.float32)
    y = g.node(Conv(pads=(4, 4), dilations=(2,)), x, g.constant(weights))
    cut = g.node(Slice(), y, g.constant((0,), "int64"), g.constant((-4,), "int64"), g.constant((2,), "int64"))
    compiled = dovetail.Core().compile_model(g.model([g.node(Relu(), cut)]), "NUMPY")
    for batch, length in ((1, 11), (3, 1), (2, 30), (0, 7), (2, 5)):
        given = rng.standard_normal((batch, 3, length)).astype(np.float32)
        long = np.pad(given, ((0, 0), (0, 0), (4, 0)))
        parts = [np.einsum("ncp,mcp->nm", long[:, :, t : t + 5 : 2], weights) for t in range(length)]
        np.testing.assert_allclose(compiled({"x": given})[0], np.maximum(np.stack(parts, 2), 0), rtol=1e-5, atol=1e-5)
    assert (
        "Slice" not in str(compiled.report()).replace(" + ", " ").split("by")[0] or len(str(compiled.report()).splitlines()) == 1
    )
