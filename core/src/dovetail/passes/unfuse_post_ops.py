"""Unfuse post-ops: chains attached to nodes become separate nodes, which the fusion pass merges where devices accept them."""

import dataclasses
from collections.abc import Iterator

from dovetail.errors import GraphError
from dovetail.graph.graph import Graph, Node
from dovetail.graph.rewriting import represented_by
from dovetail.names import unique_name

__all__ = ["unfuse_post_ops"]


def unfuse_post_ops(graph: Graph) -> Graph:
    """The graph without post-ops, its sub-graphs included.

    Each becomes a node `<node>/<position>_<name>` that reads the result of the one before.
    The last one writes output 0 of the node. All passes after this one may then treat every node as its operator alone. Needs
    no types. Raises `GraphError` for a chain on a node without output 0.
    """
    if not _has_chains(graph):
        return graph
    taken = {*graph.types, *graph.producers, *graph.constants, *(node.name for node in graph.nodes)}
    nodes = [part for node in map(_inside, graph.nodes) for part in (_split(node, taken) if node.post_ops else (node,))]
    return graph.replace(nodes=tuple(nodes))


def _has_chains(graph: Graph) -> bool:
    return any(node.post_ops or any(map(_has_chains, node.op.subgraphs)) for node in graph.nodes)


def _inside(node: Node) -> Node:
    """The node with the sub-graphs of its operator without post-ops."""
    if not any(map(_has_chains, node.op.subgraphs)):
        return node
    graphs = {name: g for name in node.op.attributes if isinstance(g := getattr(node.op, name), Graph)}
    return dataclasses.replace(node, op=node.op.replace(**{name: unfuse_post_ops(g) for name, g in graphs.items()}))


def _split(node: Node, taken: set[str]) -> Iterator[Node]:
    if not node.outputs or not node.outputs[0]:
        raise GraphError(f"node {node} has post-ops and no output 0 that they could change")
    from dovetail.internal.post_ops import operator_of  # here, because few models have chains

    origins = represented_by(node)
    labels = [getattr(p, "algorithm", p.kind) for p in node.post_ops]
    names = [unique_name(f"{node.name}/{index}_{label}", taken) for index, label in enumerate(labels)]
    # The value between two nodes is named after the node that reads it.
    values = [*names, node.outputs[0]]
    yield dataclasses.replace(node, outputs=(values[0], *node.outputs[1:]), post_ops=(), origins=origins)
    for index, post_op in enumerate(node.post_ops):
        op, operands = operator_of(post_op)
        yield Node(names[index], op, (values[index], *operands), (values[index + 1],), (), origins)
