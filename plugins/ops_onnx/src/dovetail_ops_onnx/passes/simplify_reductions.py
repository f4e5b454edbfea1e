"""Simplify reductions: over axes of size 1 the result is the input under another shape; means of means are one mean."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import Graph, Node, as_constant
from dovetail.passes import drop_dead_nodes, represented_by, with_constants
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._views import as_view

__all__ = ["simplify_reductions"]

_KEEPING_ONE = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
"""The reductions that give a single element back as it is."""


def simplify_reductions(graph: Graph) -> Graph:
    """The graph with a reshape for each reduction over constant axes that all have size 1, and one mean for two in a row.

    A reshape is a view, which no device computes. Those to the input's own shape are identities afterwards. The means are of
    floats, over constant axes that both keep; nobody else reads its result. Needs types.
    """
    shapes: dict[str, NDArray[Any]] = {}
    graph = _joined_means(graph)
    nodes = tuple(_simplified(node, graph, shapes) for node in graph.nodes)
    return with_constants(graph.replace(nodes=nodes), shapes) if shapes else graph


def _joined_means(graph: Graph) -> Graph:
    """The graph with one ReduceMean for each two in a row."""
    joined: dict[int, Node] = {}
    constants: dict[str, NDArray[Any]] = {}
    by_output: dict[str, tuple[Node, tuple[int, ...]]] = {}
    for node in graph.nodes:
        axes = _axes_of_mean(node, graph)
        if axes is None:
            continue
        before = by_output.get(node.inputs[0])
        alone = node.inputs[0] not in graph.output_names and len(graph.consumers[node.inputs[0]]) == 1
        if before is not None and alone:
            axes = tuple(sorted({*axes, *before[1]}))
            name = graph.free_name(f"{node.name}.axes")
            constants[name] = as_constant(np.asarray(axes, np.int64))
            origins = represented_by(before[0], node)
            node, old = dataclasses.replace(node, inputs=(before[0].inputs[0], name), origins=origins), node
            joined[id(old)] = node
        by_output[node.outputs[0]] = node, axes
    if not joined:
        return graph
    nodes = tuple(joined.get(id(node), node) for node in graph.nodes)
    return drop_dead_nodes(with_constants(graph.replace(nodes=nodes), constants))


def _axes_of_mean(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """The constant axes of a ReduceMean of floats that keeps them, counted from the front; None for any other node."""
    op = node.op
    if not (isinstance(op, Reduction) and is_one(op, "ReduceMean") and op.keepdims) or node.post_ops:
        return None
    if not graph.types[node.inputs[0]].dtype.is_float:
        return None
    axes = graph.type_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is not None and axes.value is None:
        return None
    return op.reduced_axes(graph.types[node.inputs[0]].rank, None if axes is None else axes.value)


def _simplified(node: Node, graph: Graph, shapes: dict[str, NDArray[Any]]) -> Node:
    op = node.op
    if not isinstance(op, Reduction) or not is_one(op, *_KEEPING_ONE) or node.post_ops:
        return node
    data, axes = graph.types[node.inputs[0]], graph.type_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is not None and axes.value is None:
        return node
    reduced = op.reduced_axes(data.rank, None if axes is None else axes.value)
    if any(data.dims[axis] != 1 for axis in reduced):
        return node
    return as_view(node, node.inputs[0], graph, shapes)
