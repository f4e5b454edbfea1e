"""Simplify transposes: two become one, those that move axes of size 1 alone are views, those of matrices go into products."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.graph import Graph, Node
from dovetail.passes import rename_reads, with_constants
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._patterns import Keeps
from dovetail_ops_onnx.passes._views import as_view
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["simplify_transposes"]


def simplify_transposes(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with fewer transposes that move data. Needs types and schedule order.

    A transpose of a transpose reads the first value itself; where both cancel, its readers do. A transpose that leaves the order
    of the axes larger than 1 is a reshape, which no device computes. A product of float matrices of which some are
    transposed is a Gemm where the device has a kernel for that. Nodes that nobody reads any more are dead afterwards.
    """
    changed: dict[int, Node] = {}
    shapes: dict[str, NDArray[Any]] = {}
    same: dict[str, str] = {}
    for node in graph.nodes:
        if _is_transpose(node) and (source := _cancelled(node, graph)):
            same[node.outputs[0]] = source
            continue
        found = _simplified(node, graph, shapes) if _is_transpose(node) else _product(node, graph, keeps)
        if found is not None:
            changed[id(node)] = found
    if not changed and not same:
        return graph
    nodes = tuple(rename_reads(changed.get(id(node), node), same) for node in graph.nodes)
    return with_constants(graph.replace(nodes=nodes), shapes)


def _is_transpose(node: Node | None) -> bool:
    return node is not None and type(node.op) is Transpose and not node.post_ops


def _cancelled(node: Node, graph: Graph) -> str:
    """The value that the transpose gives again, `""` for none: not for an output of the graph, which needs its name."""
    source, order = _origin(node, graph)
    gives_again = tuple(order) == tuple(range(len(order))) and node.outputs[0] not in graph.output_names
    return source if gives_again else ""


def _simplified(node: Node, graph: Graph, shapes: dict[str, NDArray[Any]]) -> Node | None:
    """A transpose in another form; `shapes` gets the constant that a reshape reads."""
    source, order = _origin(node, graph)
    if not _moves(order, graph.types[source].dims):
        return as_view(node, source, graph, shapes)
    if source == node.inputs[0]:
        return None
    return dataclasses.replace(node, op=Transpose(perm=tuple(order)), inputs=(source,))


def _origin(node: Node, graph: Graph) -> tuple[str, Sequence[int]]:
    """The first value of a chain of transposes, and where each axis of the last comes from in it."""
    assert isinstance(node.op, Transpose)
    source, order = node.inputs[0], node.op.order(len(graph.types[node.inputs[0]].dims))
    while (before := graph.producers.get(source)) is not None and _is_transpose(before):
        assert isinstance(before.op, Transpose)
        inner = before.op.order(len(order))
        source, order = before.inputs[0], tuple(inner[axis] for axis in order)
    return source, order


def _moves(order: Sequence[int], dims: Sequence[int]) -> bool:
    kept = [axis for axis in order if dims[axis] != 1]
    return kept != sorted(kept)


def _product(node: Node, graph: Graph, keeps: Keeps) -> Node | None:
    """A product of two matrices that reads transposed ones where they come from."""
    if not is_one(node.op, "MatMul", "Gemm") or node.post_ops:
        return None
    if any(graph.types[name].rank != 2 or not graph.types[name].dtype.is_float for name in node.inputs[:2]):
        return None
    (left, turn_left), (right, turn_right) = (_turned(name, graph) for name in node.inputs[:2])
    if (left, right) == node.inputs[:2]:
        return None
    from dovetail_ops_onnx.gemm import Gemm  # here, because few matrices are transposed

    op = node.op if isinstance(node.op, Gemm) else Gemm()
    turned = dataclasses.replace(op, transA=op.transA ^ turn_left, transB=op.transB ^ turn_right)
    merged = dataclasses.replace(node, op=turned, inputs=(left, right, *node.inputs[2:]))
    return merged if keeps(merged, graph) else None


def _turned(name: str, graph: Graph) -> tuple[str, bool]:
    """The matrix from which this one comes by transposes, and whether it is the other way round."""
    node = graph.producers.get(name)
    if node is None or not _is_transpose(node):
        return name, False
    source, order = _origin(node, graph)
    return source, tuple(order) == (1, 0)
