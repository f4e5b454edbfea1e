"""Merges nodes before kernels are chosen: one launch in place of several."""

from collections.abc import Callable, Iterable, Mapping

from dovetail.device import Graph, Node, TypedNode

__all__ = ["Makers", "merge"]

Makers = Mapping[str, Node]
"""For each value that is the only one of its node: that node."""


def merge(
    graph: Graph, find: Callable[[Makers, Node], tuple[Iterable[Node], Node] | None], accepts: Callable[[TypedNode], bool]
) -> Graph:
    """The graph with one node in place of each node with which others can be merged.

    `find` gives those others, whose results nothing reads before, and the node in place of all; None where there are none. A node
    is merged once.
    `accepts` says whether a kernel runs that node.
    """
    makers = {node.writes[0]: node for node in graph.nodes if len(node.writes) == 1}
    changed: dict[str, Node | None] = {}
    for node in graph.nodes:
        found = find(makers, node)
        if found is None or any(other.name in changed for other in found[0]):
            continue
        if accepts(TypedNode.of(found[1], graph)):
            changed |= {**dict.fromkeys(other.name for other in found[0]), node.name: found[1]}
    kept = [changed.get(node.name, node) for node in graph.nodes]
    return graph.replace(nodes=tuple(node for node in kept if node is not None)) if changed else graph
