"""Decompose: replace operators by their composition, wherever the device has no kernel of its own for them."""

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.model import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.op import Operator
from dovetail.ops.identity import Identity
from dovetail.passes._context import node_context
from dovetail.passes.constant_folding import fold_constants, infer_node, run_reference
from dovetail.passes.eliminate import drop_dead_nodes, rename_reads
from dovetail.passes.schedule import schedule
from dovetail.passes.unfuse_post_ops import unfuse_post_ops

__all__ = ["decompose", "evaluate_composition"]

Keeps = Callable[[Node, Graph], bool]
"""Whether a device runs the node, whose types are in the graph, with a kernel of its own."""

_evaluating: ContextVar[tuple[str, ...]] = ContextVar("operators whose compositions are being evaluated", default=())


def decompose(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with compositions expanded, again and again, until every node left is kept or has no composition.

    Needs types; gives types. Names of inner nodes are `<node>/<inner>` (`<node>_1/<inner>` in a graph that uses such names
    itself). Raises `OperatorError` for a composition that contains its own operator, directly or through others, and for one
    whose outputs differ from those that `infer` gave.
    """
    return _expand_all(graph, keeps, ())


def _expand_all(graph: Graph, keeps: Keeps, stack: tuple[str, ...]) -> Graph:
    expandable = {node.name for node in graph.nodes if node.op.has_composition() and not keeps(node, graph)}
    if not expandable:
        return graph
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    names = sorted({n.name for n in graph.nodes} | types.keys() | constants.keys())
    for node in graph.nodes:
        if node.name not in expandable:
            nodes.append(node)
            continue
        if node.op.key in stack:
            raise OperatorError(f"node {node}: the composition contains itself: {' -> '.join((*stack, node.op.key))}")
        body = _expand_all(_body(node, graph, _scope(node.name, names)), keeps, (*stack, node.op.key))
        nodes += body.nodes
        constants.update(body.constants)
        types.update(body.types)
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _scope(name: str, names: Sequence[str]) -> str:
    """`name`, or `name_1`, ... so that no name of the sorted `names` starts with the scope and a slash: exporters use slashes."""
    count, scope = 0, name
    while (at := bisect_left(names, f"{scope}/")) < len(names) and names[at].startswith(f"{scope}/"):
        count += 1
        scope = f"{name}_{count}"
    return scope


def _body(node: Node, graph: Graph, scope: str) -> Graph:
    """The composition of `node`, typed and folded, writing to the node's own outputs."""
    outer = {name: graph.types[name] for name in node.inputs if name}
    with node_context(node, [graph.type_of(name) for name in node.inputs]):
        g = GraphBuilder(scope, outer)
        outputs = _composed(node.op, g, node.inputs)
        if len(outputs) < len(node.outputs):
            raise OperatorError(f"compose() returned {len(outputs)} outputs, the node has {len(node.outputs)}")
        pairs = [(inner, name) for inner, name in zip(outputs, node.outputs, strict=False) if name]
        raw = unfuse_post_ops(g.graph(tuple(dict.fromkeys(inner for inner, _ in pairs))))
        _check_defined(raw, outer)
    known = {name: graph.constants[name] for name in outer if name in graph.constants}
    body = fold_constants(raw.replace(inputs=tuple(n for n in outer if n not in known), constants={**raw.constants, **known}))
    with node_context(node):
        _check_types(pairs, body.types, graph.types)
    return _write_to(drop_dead_nodes(body), pairs, node, scope)


def _composed(op: Operator, g: GraphBuilder, inputs: Sequence[str]) -> tuple[str, ...]:
    given = op.compose(g, *inputs, *[""] * (len(op.inputs) - len(inputs)))
    return (given,) if isinstance(given, str) else tuple(given)


def _check_defined(raw: Graph, outer: Mapping[str, TensorType]) -> None:
    defined = {*outer, *raw.constants, *raw.producers}
    for name in raw.outputs:
        if name not in defined:
            raise OperatorError(f"compose() returned {name!r}, which is no input, no constant and no node's output")


def _check_types(pairs: Sequence[tuple[str, str]], inner: Mapping[str, TensorType], outer: Mapping[str, TensorType]) -> None:
    for index, (composed, name) in enumerate(pairs):
        # Nodes after this one were typed by what infer() said.
        if inner[composed] != outer[name]:
            raise OperatorError(f"output {index}: compose() gives {inner[composed]}, infer() says {outer[name]}")


def _write_to(body: Graph, outputs: Sequence[tuple[str, str]], origin: Node, scope: str) -> Graph:
    """The body with inner values renamed to the outer outputs; a value that no inner node writes is copied by an Identity."""
    names: dict[str, str] = {}
    copies = []
    for inner, name in outputs:
        if inner in body.producers and inner not in names:
            names[inner] = name
        else:
            copies.append(Node(f"{scope}/copy:{name}", Identity(), (names.get(inner, inner),), (name,)))
    renamed = [rename_reads(n, names) for n in body.nodes]
    nodes = [
        dataclasses.replace(n, outputs=tuple(names.get(o, o) for o in n.outputs), origins=origin.origins or (origin.name,))
        for n in (*renamed, *copies)
    ]
    types = {names.get(n, n): t for n, t in body.types.items()}
    types.update({name: body.types[inner] for inner, name in outputs})
    return body.replace(nodes=tuple(nodes), outputs=tuple(name for _, name in outputs), types=types)


def evaluate_composition(op: Operator, values: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """Run a composition by the references of its operators. Returns all its outputs.

    Raises `OperatorError` for a composition that contains its own operator.
    """
    with _entered(op.key):
        g = GraphBuilder(op.stem)
        outputs = _composed(op, g, [g.constant(v, name="input") if v is not None else "" for v in values])
        body = unfuse_post_ops(g.graph(outputs))
        _check_defined(body, {})
        known = dict(body.constants)
        for node in drop_dead_nodes(schedule(body)).nodes:
            given = [known[name] if name else None for name in node.inputs]
            types = infer_node(node, [None if v is None else TensorType.of(v, known=True) for v in given])
            known.update(zip(node.writes, run_reference(node, given, types), strict=True))
        return tuple(known[name] for name in outputs)


@contextmanager
def _entered(key: str) -> Iterator[None]:
    stack = _evaluating.get()
    if key in stack:
        raise OperatorError(f"the composition contains itself: {' -> '.join((*stack, key))}")
    token = _evaluating.set((*stack, key))
    try:
        yield
    finally:
        _evaluating.reset(token)
