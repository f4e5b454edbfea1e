"""Simplify gathers: the only slice of an axis is the input under another shape."""

from typing import Any

from numpy.typing import NDArray

from dovetail.graph import Graph, Node
from dovetail.passes import with_constants
from dovetail_ops_onnx.gather import Gather, outside
from dovetail_ops_onnx.passes._views import as_view

__all__ = ["simplify_gathers"]


def simplify_gathers(graph: Graph) -> Graph:
    """The graph with a reshape for each Gather of one constant index along an axis of size 1.

    Exporters write so the only text or image of a batch, and the only layer of a recurrence. A reshape is a view, which no device
    computes. An index out of range is left to the device. Needs types.
    """
    shapes: dict[str, NDArray[Any]] = {}
    nodes = tuple(_simplified(node, graph, shapes) for node in graph.nodes)
    return with_constants(graph.replace(nodes=nodes), shapes) if shapes else graph


def _simplified(node: Node, graph: Graph, shapes: dict[str, NDArray[Any]]) -> Node:
    op = node.op
    if not isinstance(op, Gather) or node.post_ops:
        return node
    data, index = graph.types[node.inputs[0]], graph.types[node.inputs[1]].value
    if index is None or index.size != 1 or data.dims[op.axis % data.rank] != 1 or outside(index, 1):
        return node
    return as_view(node, node.inputs[0], graph, shapes)
