"""Eliminate: drop nodes that change nothing and nodes that nobody reads."""

import dataclasses
from collections.abc import Mapping

from dovetail.graph.model import Graph, Node
from dovetail.graph.post_ops import Eltwise, PostOp

__all__ = ["drop_dead_nodes", "drop_identities", "rename_reads"]


def drop_dead_nodes(graph: Graph) -> Graph:
    """The graph without nodes and constants that no output depends on. The inputs stay, read or not."""
    wanted = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.writes):
            kept.append(node)
            wanted.update(node.reads)
    constants = {name: array for name, array in graph.constants.items() if name in wanted}
    return graph.replace(nodes=tuple(reversed(kept)), constants=constants)


def drop_identities(graph: Graph) -> Graph:
    """The graph without nodes whose only read output equals their first input. Needs types and schedule order.

    An output of the graph may then be the value of another name: outputs count by position from here on.
    """
    alias: dict[str, str] = {}
    kept = []
    for node in graph.nodes:
        current = rename_reads(node, alias)
        if _is_identity(current, graph):
            alias[node.outputs[0]] = current.inputs[0]
        else:
            kept.append(current)
    return graph.replace(nodes=tuple(kept), outputs=tuple(alias.get(name, name) for name in graph.outputs))


def _is_identity(node: Node, graph: Graph) -> bool:
    if node.post_ops or not node.inputs or not node.inputs[0] or not node.outputs[0]:
        return False
    unread = all(name not in graph.consumers and name not in graph.output_names for name in node.outputs[1:])
    return unread and node.op.is_identity([graph.type_of(n) for n in node.inputs], [graph.types[n] for n in node.writes])


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
