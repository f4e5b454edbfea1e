"""Decompose: replace operators by their composition, wherever the device has no kernel of its own for them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.model import Graph, Node
from dovetail.op import Operator
from dovetail.ops.identity import Identity
from dovetail.passes._context import node_context
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.eliminate import rename_reads

__all__ = ["decompose", "evaluate_composition"]

Keeps = Callable[[Node, Graph], bool]
"""Whether a device runs the node, whose types are in the graph, with a kernel of its own."""


def decompose(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with compositions expanded, again and again, until every node left is kept or has no composition.

    Needs types; gives types. Names of inner nodes are `<node>/<inner>`. Raises `OperatorError` for a composition that
    contains its own operator, directly or through others.
    """
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        if node.op.has_composition() and not keeps(node, graph):
            body = _expanded(node, graph, keeps, (node.op.key,))
            nodes += body.nodes
            constants.update(body.constants)
            types.update(body.types)
        else:
            nodes.append(node)
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _expanded(node: Node, graph: Graph, keeps: Keeps, stack: tuple[str, ...]) -> Graph:
    body = _body(node, graph)
    nodes: list[Node] = []
    constants, types = dict(body.constants), dict(body.types)
    for inner in body.nodes:
        if inner.op.has_composition() and not keeps(inner, body):
            if inner.op.key in stack:
                raise OperatorError(f"node {node}: the composition contains itself: {' -> '.join((*stack, inner.op.key))}")
            deeper = _expanded(inner, body, keeps, (*stack, inner.op.key))
            nodes += deeper.nodes
            constants.update(deeper.constants)
            types.update(deeper.types)
        else:
            nodes.append(inner)
    return body.replace(nodes=tuple(nodes), constants=constants, types=types)


def _body(node: Node, graph: Graph) -> Graph:
    """The composition of `node`, typed and folded, writing to the node's own outputs."""
    outer = {name: graph.types[name] for name in node.inputs if name}
    with node_context(node, [graph.type_of(name) for name in node.inputs]):
        g = GraphBuilder(node.name, outer)
        composed = node.op.compose(g, *node.inputs, *[""] * (len(node.op.inputs) - len(node.inputs)))
        outputs = (composed,) if isinstance(composed, str) else tuple(composed)
        if len(outputs) < len(node.outputs):
            raise OperatorError(f"compose() returned {len(outputs)} outputs, the node has {len(node.outputs)}")
    pairs = [(inner, name) for inner, name in zip(outputs, node.outputs, strict=False) if name]
    raw = g.graph(tuple(dict.fromkeys(inner for inner, _ in pairs)))
    known = {name: graph.constants[name] for name in outer if name in graph.constants}
    body = fold_constants(raw.replace(inputs=tuple(n for n in outer if n not in known), constants={**raw.constants, **known}))
    return _write_to(body, pairs, node)


def _write_to(body: Graph, outputs: Sequence[tuple[str, str]], origin: Node) -> Graph:
    """The body with inner values renamed to the outer outputs; a value that no inner node writes is copied by an Identity."""
    names: dict[str, str] = {}
    copies = []
    for inner, name in outputs:
        if inner in body.producers and inner not in names:
            names[inner] = name
        else:
            copies.append(Node(f"{origin.name}/copy:{name}", Identity(), (names.get(inner, inner),), (name,)))
    renamed = [rename_reads(n, names) for n in body.nodes]
    nodes = [
        dataclasses.replace(n, outputs=tuple(names.get(o, o) for o in n.outputs), origins=origin.origins or (origin.name,))
        for n in (*renamed, *copies)
    ]
    types = {names.get(n, n): t for n, t in body.types.items()}
    types.update({name: body.types[inner] for inner, name in outputs})
    return body.replace(nodes=tuple(nodes), outputs=tuple(name for _, name in outputs), types=types)


def evaluate_composition(op: Operator, values: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """Run a composition by the references of its operators. Returns all its outputs."""
    g = GraphBuilder(op.stem)
    names = [g.constant(v, name="input") if v is not None else "" for v in values]
    composed = op.compose(g, *names)
    outputs = (composed,) if isinstance(composed, str) else tuple(composed)
    folded = fold_constants(g.graph(outputs), budget=1 << 62)
    return tuple(folded.constants[name] for name in outputs)
