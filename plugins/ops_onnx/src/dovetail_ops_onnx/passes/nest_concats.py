"""Concats that repeat others: a layer of a DenseNet joins all that the layer before has joined, and one more."""

from collections.abc import Mapping
from dataclasses import replace

from dovetail.graph import Graph, Node
from dovetail_ops_onnx.concat import Concat

__all__ = ["nest_concats"]

LEAST = 4
"""Inputs that a Concat repeats: one of fewer is a single launch on a GPU, and as many bytes move in any case."""

_Known = Mapping[tuple[int, str, tuple[str, ...]], str]


def nest_concats(graph: Graph) -> Graph:
    """The graph with the result of an earlier Concat in place of its inputs, where a Concat of floats begins with these.

    Needs types and schedule order.
    """
    known: dict[tuple[int, str, tuple[str, ...]], str] = {}
    nodes = []
    for node in graph.nodes:
        nested = node
        if isinstance(node.op, Concat) and not node.post_ops and graph.types[node.writes[0]].dtype.is_float:
            nested = _nested(node, node.op.axis, known)
            known.setdefault((node.op.axis, node.affinity, node.inputs), node.writes[0])
        nodes.append(nested)
    changed = any(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
    return graph.replace(nodes=tuple(nodes)) if changed else graph


def _nested(node: Node, axis: int, known: _Known) -> Node:
    for count in range(len(node.inputs) - 1, LEAST - 1, -1):
        joined = known.get((axis, node.affinity, node.inputs[:count]))
        if joined is not None:
            return replace(node, inputs=(joined, *node.inputs[count:]))
    return node
