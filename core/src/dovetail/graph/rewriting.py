"""Small rewritings that several passes share: dead nodes, renamed values, constants, origins."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from numpy.typing import NDArray

from dovetail.graph.graph import Graph, Node
from dovetail.graph.post_ops import Eltwise, PostOp
from dovetail.graph.types import TensorType

__all__ = ["drop_dead_nodes", "needed", "rename_reads", "represented_by", "with_constants"]


def drop_dead_nodes(graph: Graph) -> Graph:
    """The graph without nodes and constants that no output depends on. The inputs stay, read or not.

    Optional outputs at a node's end that nothing reads are left out: devices may have a kernel without them only.
    """
    kept, read = needed(graph.nodes, graph.outputs)
    constants = {name: array for name, array in graph.constants.items() if name in read}
    nodes = tuple([node if len(node.outputs) < 2 else _without_unread(node, read) for node in kept])
    unchanged = nodes == graph.nodes and len(constants) == len(graph.constants)
    return graph if unchanged else graph.replace(nodes=nodes, constants=constants)


def _without_unread(node: Node, read: Set[str]) -> Node:
    ports, count = node.op.outputs, len(node.outputs)
    while 1 < count <= len(ports) and ports[count - 1].optional and node.outputs[count - 1] not in read:
        count -= 1
    return node if count == len(node.outputs) else dataclasses.replace(node, outputs=node.outputs[:count])


def needed(nodes: Sequence[Node], outputs: Iterable[str]) -> tuple[list[Node], set[str]]:
    """The nodes on which an output depends, in their order, and the outputs with all values that these nodes read."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.writes):
            kept.append(node)
            wanted.update(node.reads)
    return kept[::-1], wanted


def rename_reads(node: Node, names: Mapping[str, str]) -> Node:
    """The node reading other values: old name -> new name. Sub-graphs are left as they are."""
    if not names or not any(name in names for name in node.reads):
        return node
    post_ops = tuple(_rename_operand(p, names) for p in node.post_ops)
    return dataclasses.replace(node, inputs=tuple(names.get(n, n) for n in node.inputs), post_ops=post_ops)


def _rename_operand(post_op: PostOp, names: Mapping[str, str]) -> PostOp:
    if isinstance(post_op, Eltwise):
        return post_op
    return dataclasses.replace(post_op, operand=names.get(post_op.operand, post_op.operand))


def represented_by(*nodes: Node) -> tuple[str, ...]:
    """The names of the model's nodes that these nodes represent, each once: the `origins` of a node in their place."""
    if len(nodes) == 1:  # asked for each of thousands of equal nodes
        return nodes[0].origins or (nodes[0].name,)
    return tuple(dict.fromkeys([name for node in nodes for name in node.origins or (node.name,)]))


def with_constants(graph: Graph, arrays: Mapping[str, NDArray[Any]]) -> Graph:
    """The graph with further constants, read-only arrays, and their types."""
    types = {name: TensorType.of(array, known=True) for name, array in arrays.items()}
    return graph.replace(constants={**graph.constants, **arrays}, types={**graph.types, **types})
