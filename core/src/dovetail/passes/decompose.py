"""Decompose: replace operators by their composition, wherever the device has no kernel of its own for them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import DataDependentShape, OperatorError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.model import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.op import Operator
from dovetail.passes._bodies import check_defined, check_types, free_scope, write_to
from dovetail.passes._context import node_context
from dovetail.passes.constant_folding import fold_constants, infer_node, run_reference, run_untyped
from dovetail.passes.eliminate import drop_dead_nodes
from dovetail.passes.schedule import schedule
from dovetail.passes.unfuse_post_ops import unfuse_post_ops

__all__ = ["decompose", "evaluate_composition", "infer_composition"]

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
        body = _expand_all(_body(node, graph, free_scope(node.name, names)), keeps, (*stack, node.op.key))
        nodes += body.nodes
        constants.update(body.constants)
        types.update(body.types)
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


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
        check_defined(raw, outer)
    known = {name: graph.constants[name] for name in outer if name in graph.constants}
    body = fold_constants(raw.replace(inputs=tuple(n for n in outer if n not in known), constants={**raw.constants, **known}))
    with node_context(node):
        check_types(pairs, body.types, graph.types)
    return write_to(drop_dead_nodes(body), pairs, node, scope)


def _composed(op: Operator, g: GraphBuilder, inputs: Sequence[str]) -> tuple[str, ...]:
    given = op.compose(g, *inputs, *[""] * (len(op.inputs) - len(inputs)))
    return (given,) if isinstance(given, str) else tuple(given)


def evaluate_composition(op: Operator, values: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """Run a composition by the references of its operators. Returns all its outputs.

    Raises `OperatorError` for a composition that contains its own operator.
    """
    with _entered(op.key):
        g = GraphBuilder(op.stem)
        outputs = _composed(op, g, [g.constant(v, name="input") if v is not None else "" for v in values])
        body = unfuse_post_ops(g.graph(outputs))
        check_defined(body, {})
        known = dict(body.constants)
        for node in drop_dead_nodes(schedule(body)).nodes:
            given = [known[name] if name else None for name in node.inputs]
            known.update(zip(node.writes, _run(node, given), strict=True))
        return tuple(known[name] for name in outputs)


def _run(node: Node, values: Sequence[NDArray[Any] | None]) -> list[Any]:
    try:
        types = infer_node(node, [None if v is None else TensorType.of(v, known=True) for v in values])
    except DataDependentShape:
        return run_untyped(node, values)
    return run_reference(node, values, types)


def infer_composition(op: Operator, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The types that the operators of a composition infer for its outputs; inputs that are left out are None.

    Raises `OperatorError` for a composition that contains its own operator, and what they raise, such as `DataDependentShape`.
    """
    with _entered(op.key):
        outer = {f"input{i}": t for i, t in enumerate(types) if t is not None and t.value is None}
        g = GraphBuilder(op.stem, outer)
        known = [g.constant(t.value, name="input") if t and t.value is not None else "" for t in types]
        given = [f"input{i}" if f"input{i}" in outer else name for i, name in enumerate(known)]
        outputs = _composed(op, g, given)
        body = unfuse_post_ops(g.graph(outputs))
        check_defined(body, outer)
        try:
            typed = fold_constants(body.replace(inputs=tuple(outer)))
        except OperatorError as error:
            error.node = None  # the node that is composed has to be named, too
            raise
        return tuple(typed.types[name] for name in outputs)


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
