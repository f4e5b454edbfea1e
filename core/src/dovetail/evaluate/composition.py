"""Compositions: their nodes, their types, and their results by the references of their operators."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import DataDependentShape, OperatorError
from dovetail.evaluate.inference import infer_node
from dovetail.evaluate.reference import run_reference, run_untyped, with_post_ops
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.graph.schedule import schedule
from dovetail.graph.types import TensorType

__all__ = ["check_defined", "composed", "evaluate_composition", "infer_composition"]

_evaluating: ContextVar[tuple[str, ...]] = ContextVar("operators whose compositions are being evaluated", default=())


def composed(op: AbstractOperator, g: GraphBuilder, inputs: Sequence[str]) -> tuple[str, ...]:
    """Add the composition to `g`; returns the names of all its outputs. `inputs` may end earlier than the ports."""
    given: Any = op.compose(g, *inputs, *[""] * (len(op.inputs) - len(inputs)))
    outputs = (given,) if isinstance(given, str) else given
    if not isinstance(outputs, Sequence) or not all(isinstance(name, str) for name in outputs):
        raise OperatorError(f"compose() returned {given!r:.80}; accepted: the name of its output, or a tuple of names")
    return tuple(outputs)


def check_defined(body: Graph, outer: Mapping[str, object]) -> None:
    """Raise `OperatorError` for an output of a composition that is neither its own nor in `outer`."""
    defined = {*outer, *body.constants, *body.producers}
    for name in body.outputs:
        if name not in defined:
            raise OperatorError(f"compose() returned {name!r}, which is not an input, a constant or the output of a node")


def evaluate_composition(op: AbstractOperator, values: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """Run a composition by the references of its operators. Returns all its outputs.

    Raises `OperatorError` for a composition that contains its own operator.
    """
    with _entered(op.key):
        g = GraphBuilder(op.stem, {})
        outputs = composed(op, g, [g.constant(v, name="input") if v is not None else "" for v in values])
        body = g.graph(outputs)
        check_defined(body, {})
        known = dict(body.constants)
        for node in drop_dead_nodes(schedule(body)).nodes:
            known.update(zip(node.writes, _run(node, known), strict=True))
        return tuple(known[name] for name in outputs)


def _run(node: Node, known: Mapping[str, Any]) -> list[Any]:
    values = [known[name] if name else None for name in node.inputs]
    try:
        types = infer_node(node, [None if v is None else TensorType.of(v, known=True) for v in values])
    except DataDependentShape:
        return with_post_ops(node, run_untyped(node, values), known)
    return with_post_ops(node, run_reference(node, values, types), known)


def infer_composition(op: AbstractOperator, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The types that the operators of a composition infer for its outputs; inputs that are left out are None.

    Raises `OperatorError` for a composition that contains its own operator, and what they raise, such as `DataDependentShape`.
    """
    with _entered(op.key):
        outer = {f"input{i}": t for i, t in enumerate(types) if t is not None and t.value is None}
        g = GraphBuilder(op.stem, outer)
        known = [g.constant(t.value, name="input") if t and t.value is not None else "" for t in types]
        outputs = composed(op, g, [f"input{i}" if f"input{i}" in outer else name for i, name in enumerate(known)])
        body = g.graph(outputs)
        check_defined(body, outer)
        found = dict(body.types)
        try:
            for node in schedule(body.replace(inputs=tuple(outer))).nodes:
                found.update(zip(node.writes, _inferred(node, found), strict=True))
        except OperatorError as error:
            error.node = None  # the node that is composed has to be named, too
            raise
        return tuple(found[name] for name in outputs)


def _inferred(node: Node, types: Mapping[str, TensorType]) -> Sequence[TensorType]:
    """The output types, with the results where all inputs are known: shapes may depend on them."""
    inputs = [types[name] if name else None for name in node.inputs]
    outputs = infer_node(node, inputs)
    values = {name: types[name].value for name in (*filter(None, node.inputs), *node.operands)}
    if node.op.is_random or node.op.subgraphs or any(value is None for value in values.values()):
        return outputs
    if not (node.op.has_reference() or node.op.has_composition()):
        return outputs
    results = run_reference(node, [None if t is None else t.value for t in inputs], outputs)
    return [TensorType.of(array, known=True) for array in with_post_ops(node, results, values)]


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
