"""Estimates of how long the nodes of a graph may take, from their operators and types alone."""

from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.types import TensorType

__all__ = ["BRIEF", "flops", "most_seconds", "seconds_of"]

BRIEF = 0.002
"""Estimated seconds of a plan up to which references take less time than to make it."""


def most_seconds(node: Node, graph: Graph) -> float:
    """How long a node may take at worst, as simple loops of one thread do: 1 ns for an operation, 20 for an element, 5,000
    for a string.
    """
    return 1e-9 * flops(node, graph) + sum([_seconds(graph.types[name]) for name in (*node.reads, *node.writes)])


def seconds_of(graph: Graph) -> list[float]:
    """As `most_seconds`, of all nodes: types are mostly few objects."""
    types, costs, found = graph.types, dict[int, float](), list[float]()
    type_of = types.__getitem__
    for node in graph.nodes:
        reads = node.reads
        read, written = [*map(type_of, reads)], [*map(type_of, node.writes)]
        inputs = read if reads is node.inputs else [types[name] if name else None for name in node.inputs]
        seconds = 1e-9 * node.op.flops(inputs, written)
        for one in (*read, *written):
            cost = costs.get(id(one))
            if cost is None:
                cost = costs[id(one)] = _seconds(one)
            seconds += cost
        found.append(seconds)
    return found


def _seconds(tensor: TensorType) -> float:
    return tensor.size * (5e-6 if tensor.dtype is DType.STRING else 2e-8)


def flops(node: Node, graph: Graph) -> int:
    """The floating-point operations of a node."""
    types = graph.types
    return int(node.op.flops([types[name] if name else None for name in node.inputs], [types[name] for name in node.writes]))
