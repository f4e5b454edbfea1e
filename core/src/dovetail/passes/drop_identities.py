"""Eliminate: drop nodes whose output equals their input."""

from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.rewriting import rename_reads

__all__ = ["drop_identities"]


def drop_identities(graph: Graph) -> Graph:
    """The graph without nodes whose only read output equals their first input. Needs types and schedule order.

    An output of the graph may then be the value of another name: outputs count by position from here on.
    """
    alias: dict[str, str] = {}
    kept = []
    for node in graph.nodes:
        current = rename_reads(node, alias) if alias else node
        if _is_identity(current, graph):
            alias[node.outputs[0]] = current.inputs[0]
        else:
            kept.append(current)
    if not alias:
        return graph
    return graph.replace(nodes=tuple(kept), outputs=tuple(alias.get(name, name) for name in graph.outputs))


def _is_identity(node: Node, graph: Graph) -> bool:
    if not node.op.is_view and type(node.op).is_identity is AbstractOperator.is_identity:
        return False
    if node.post_ops or not node.inputs or not node.inputs[0] or not node.outputs[0]:
        return False
    others = node.outputs[1:]
    if others and any(name in graph.consumers or name in graph.output_names for name in others):
        return False
    return node.op.is_identity([graph.type_of(n) for n in node.inputs], [graph.types[n] for n in node.writes])
