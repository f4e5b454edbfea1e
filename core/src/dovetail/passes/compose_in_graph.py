"""Compose in the graph: replace operators that are built of the graph around them, before anything else changes that graph."""

from collections.abc import Iterable
from typing import Any

from dovetail.errors import OperatorError, OutOfMemory
from dovetail.evaluate.composition import check_defined
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import infer_node
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.post_ops import PostOp
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.graph.schedule import schedule
from dovetail.graph.types import TensorType
from dovetail.passes._bodies import check_types, free_scope, write_to
from dovetail.passes.constant_folding import type_and_fold
from dovetail.passes.unfuse_post_ops import unfuse_post_ops

__all__ = ["MAX_ROUNDS", "compose_in_graph"]

MAX_ROUNDS = 32
"""How often nodes may wait for others: each round types the whole graph again. Second derivatives need two."""

_ROOM = 5_000
"""Nodes that a graph may gain, on top of twenty times those it has: each of such operators may multiply it."""


def compose_in_graph(graph: Graph, limit: int | None = None) -> Graph:
    """The bound graph with every node expanded that has `Operator.compose_in`. Operators of sub-graphs are left for their plans.

    Inputs must have static types, or be sequences or optionals. Nodes that ask to wait are asked again when others were
    expanded. Raises `OperatorError` naming the node that waits in vain, whose composition is wrong, or that lets the graph grow
    without bound, and what `type_and_fold` raises.
    """
    if not any(cls.has_compose_in() for cls in graph.op_classes):
        return graph
    most = _ROOM + 20 * len(graph.nodes)
    for _ in range(MAX_ROUNDS):
        waiting = [node for node in graph.nodes if node.op.has_compose_in()]
        if not waiting:
            return graph
        graph = _expanded(graph, waiting, limit)
        if len(graph.nodes) > most:
            raise OutOfMemory(
                f"node {waiting[0]} and others of its kind make a graph of {len(graph.nodes):,} nodes; the limit is {most:,}"
            )
    left = next((node for node in graph.nodes if node.op.has_compose_in()), None)
    if left is not None:
        raise OperatorError(f"node {left} waits for others that wait for others, more than {MAX_ROUNDS} deep")
    return graph


def _expanded(graph: Graph, waiting: list[Node], limit: int | None) -> Graph:
    """The graph after one round: the nodes are expanded that need not wait for others."""
    typed = type_and_fold(graph, limit=limit)
    view = schedule(graph).replace(types={**typed.late, **typed.graph.types})
    names = sorted({*view.types, *(node.name for node in graph.nodes)})
    bodies = {node.name: body for node in waiting if (body := _body(node, view, free_scope(node.name, names))) is not None}
    if not bodies:
        others = ", ".join(str(node) for node in waiting[1:4])
        raise OperatorError(
            f"node {waiting[0]} needs values that depend on {others or 'itself'}", hint="give it values that do not need its own"
        )
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        body = bodies.get(node.name)
        nodes += [node] if body is None else body.nodes
        if body is not None:
            constants.update(body.constants)
            types.update({name: TensorType.of(array, known=True) for name, array in body.constants.items()})
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _body(node: Node, view: Graph, scope: str) -> Graph | None:
    """The nodes that replace the node, writing to its outputs; None when it wants to wait."""
    g = _TypedBuilder(scope, view.types)
    with node_context(node, [view.type_of(name) for name in node.inputs]):
        given = node.op.compose_in(g, view, node)
        if given is None:
            return None
        outputs = (given,) if isinstance(given, str) else tuple(given)
        if len(outputs) < len(node.outputs):
            raise OperatorError(f"compose_in() returned {len(outputs)} outputs, the node has {len(node.outputs)}")
        # A node may leave out trailing outputs; too few were refused above.
        pairs = [(inner, name) for inner, name in zip(outputs, node.outputs, strict=False) if name]
        raw = g.graph(tuple(dict.fromkeys(inner for inner, _ in pairs)))
        check_defined(raw, view.types)
        check_types(pairs, raw.types, view.types)
    return write_to(drop_dead_nodes(unfuse_post_ops(raw)), pairs, node, scope)


class _TypedBuilder(GraphBuilder):
    """A builder that knows the types of what its nodes write."""

    def node(self, op: AbstractOperator, *inputs: str, name: str = "", outputs: Any = (), post_ops: Iterable[PostOp] = ()) -> Any:
        """As `GraphBuilder.node`. Raises `OperatorError` for inputs that do not fit, and for shapes that depend on data."""
        written = super().node(op, *inputs, name=name, outputs=outputs, post_ops=post_ops)
        added = self._nodes[-1]
        self._types.update(zip(added.writes, infer_node(added, [self.type_of(n) for n in inputs]), strict=True))
        return written
