"""Type inference and constant folding, in one walk: shapes depend on values, and values can only be computed once typed."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape, OperatorError, OutOfMemory
from dovetail.graph.dtype import DType
from dovetail.graph.model import Graph, Node
from dovetail.graph.types import CONTAINERS, TensorType, as_constant
from dovetail.passes._context import node_context
from dovetail.passes.inline import chosen_branch, inlined
from dovetail.passes.schedule import schedule

__all__ = [
    "FOLD_BUDGET",
    "Typed",
    "check_limit",
    "check_sizes",
    "fold_constants",
    "infer_node",
    "run_reference",
    "run_untyped",
    "type_and_fold",
]

FOLD_BUDGET = 64 << 20
"""Bytes of new constants that one graph may get on top of four times those it has: a small file must not unfold to gigabytes."""


@dataclass(frozen=True)
class Typed:
    """A graph in schedule order with the type of every value, and the nodes that could not be typed before data is there.

    `deferred` are the nodes whose output shapes depend on data, which run sub-graphs or take sequences, and all that read
    from these, in schedule order. `late` has what is known of the types of their outputs.
    """

    graph: Graph
    deferred: tuple[Node, ...] = ()
    late: Mapping[str, TensorType] = field(default_factory=dict)


def fold_constants(graph: Graph, budget: int = FOLD_BUDGET, limit: int | None = None) -> Graph:
    """`type_and_fold` for a graph all of whose shapes are known from its inputs. Raises `DataDependentShape` for others."""
    typed = type_and_fold(graph, budget, limit)
    for node in typed.deferred:
        inputs = [typed.graph.types.get(name) or typed.late.get(name) for name in node.inputs]
        with node_context(node, inputs):
            if any(t is not None and not t.is_static for t in inputs) or node.op.has_control():
                raise DataDependentShape("an output shape depends on the data", hint="such nodes are planned when they run")
            infer_node(node, inputs)
    return typed.graph


def type_and_fold(graph: Graph, budget: int = FOLD_BUDGET, limit: int | None = None) -> Typed:
    """The graph without the nodes whose results are known already, and apart from it what has to wait for data.

    All inputs must have static types, or be sequences or optionals. Folded results become constants; an `If` whose condition
    is known becomes the nodes of its branch. `limit` is the greatest size in bytes that a single value may have. Raises
    `OperatorError` or `ShapeError` naming the node, and `OutOfMemory` for a value over the limit.
    """
    graph = schedule(graph)
    types, constants, kept = dict(graph.types), dict(graph.constants), []
    late = {name: types[name] for name in graph.inputs if not types[name].is_static}
    deferred: list[Node] = []
    room = budget + 4 * sum(array.nbytes for array in constants.values())
    waiting = deque(graph.nodes)
    while waiting:
        node = waiting.popleft()
        branch = chosen_branch(node, constants)
        if branch is not None:
            body = inlined(node, branch, {*types, *late, *graph.producers, *(n.name for n in graph.nodes)})
            constants.update(body.constants)
            types.update(body.types)
            waiting.extendleft(reversed(schedule(body).nodes))
            continue
        inputs = [types.get(name) or late[name] if name else None for name in node.inputs]
        outputs = None if late.keys() & set(node.reads) or node.op.has_control() else _static_types(node, inputs, limit)
        folded = _fold(node, outputs, constants, room)
        if folded is not None:
            outputs = tuple(TensorType.of(array, known=True) for array in folded)
            constants.update(zip(node.writes, folded, strict=True))
            room -= sum(t.nbytes for t in outputs)
        elif outputs is not None:
            kept.append(node)
        else:
            deferred.append(node)
            late.update(_late_types(node, inputs))
            continue
        types.update(zip(node.writes, outputs, strict=True))
    _check_inputs(graph, limit)
    return Typed(graph.replace(nodes=tuple(kept), constants=constants, types=types), tuple(deferred), late)


def _check_inputs(graph: Graph, limit: int | None) -> None:
    for name in graph.inputs:
        t = graph.types[name]
        if limit is not None and t.is_static and t.nbytes > limit:
            raise OutOfMemory(
                f"input {name!r} is {t}, which takes {t.nbytes:,} bytes; the limit is {limit:,}",
                hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
            )


def _static_types(node: Node, inputs: Sequence[TensorType | None], limit: int | None) -> tuple[TensorType, ...] | None:
    try:
        outputs = infer_node(node, inputs)
    except DataDependentShape:
        return None
    check_limit(node, outputs, limit)
    return outputs


def _late_types(node: Node, inputs: Sequence[TensorType | None]) -> dict[str, TensorType]:
    """What is known of the output types of a node that waits: containers are told apart, the rest is open."""
    unknown = dict.fromkeys(node.writes, TensorType(DType.FLOAT32, None))
    if not any(isinstance(t, CONTAINERS) for t in inputs) and not _is_typed(inputs):
        return unknown
    if node.op.has_control():
        return unknown
    try:
        with node_context(node, inputs):
            given = node.op.infer(*_padded(node, inputs))
    except OperatorError:  # such as DataDependentShape; what is wrong with the node is said when it runs
        return unknown
    outputs = given if isinstance(given, tuple) else (given,)
    return unknown | {name: t for name, t in zip(node.outputs, outputs, strict=False) if name}


def _is_typed(inputs: Sequence[TensorType | None]) -> bool:
    return all(t is None or t.is_static for t in inputs)


def _padded(node: Node, inputs: Sequence[Any]) -> list[Any]:
    return [*inputs, *[None] * (len(node.op.inputs) - len(inputs))]


def infer_node(node: Node, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The types of the outputs that are present. Raises `OperatorError` or `ShapeError` naming the node."""
    with node_context(node, inputs):
        node.op.check(inputs, len(node.outputs))
        given = node.op.infer(*_padded(node, inputs))
        outputs = given if isinstance(given, tuple) else (given,)
        exact = bool(node.op.outputs) and node.op.outputs[-1].variadic
        if len(outputs) < len(node.outputs) or (exact and len(outputs) > len(node.outputs)):
            raise OperatorError(f"infer() gave {len(outputs)} output types, the node has {len(node.outputs)} outputs")
        present = [t for name, t in zip(node.outputs, outputs, strict=False) if name]
        for t in present:
            if not isinstance(t, TensorType):
                raise OperatorError(f"infer() gave {t!r}", hint="it returns a TensorType for each output")
            if not t.is_static:
                raise DataDependentShape(
                    f"an output shape {t} depends on the data", hint="such nodes are planned when they run, not before"
                )
        return tuple(present)


def check_sizes(graph: Graph, limit: int) -> None:
    """Raise `OutOfMemory` naming the node for a value of more than `limit` bytes. Needs types."""
    for node in graph.nodes:
        check_limit(node, [graph.types[name] for name in node.writes], limit)


def check_limit(node: Node, outputs: Sequence[TensorType], limit: int | None) -> None:
    """Raise `OutOfMemory` naming the node for an output of more than `limit` bytes."""
    for t in outputs:
        if limit is not None and t.nbytes > limit:
            raise OutOfMemory(
                f"node {node} asks for a tensor {t} of {t.nbytes:,} bytes; the limit is {limit:,}",
                hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
            )


def _fold(
    node: Node, outputs: Sequence[TensorType] | None, constants: Mapping[str, NDArray[Any]], room: int
) -> list[NDArray[Any]] | None:
    """The outputs, if inference already knows them or all inputs are constants, and if there is room for them."""
    if outputs is not None:
        if sum(t.nbytes for t in outputs) > room:
            return None
        known = [t.value for t in outputs if t.value is not None]
        if len(known) == len(outputs):
            return [as_constant(array) for array in known]
    if node.op.is_random or node.op.subgraphs or not (node.op.has_reference() or node.op.has_composition()):
        return None
    if any(name and name not in constants for name in node.inputs):
        return None
    values = [constants[name] if name else None for name in node.inputs]
    if outputs is not None:
        return [as_constant(array) for array in run_reference(node, values, outputs)]
    given = run_untyped(node, values)
    fits = all(isinstance(v, np.ndarray) for v in given) and sum(v.nbytes for v in given) <= room
    return [as_constant(array) for array in given] if fits else None


def run_reference(node: Node, values: Sequence[NDArray[Any] | None], outputs: Sequence[TensorType]) -> list[NDArray[Any]]:
    """Run the operator's reference and check what it gives against the inferred types. Returns the outputs that are present."""
    with node_context(node, [None if v is None else TensorType.of(v) for v in values]), np.errstate(all="ignore"):
        given = node.op.reference(*_padded(node, values))
        given = given if isinstance(given, tuple) else (given,)
        present = [np.asarray(a) for name, a in zip(node.outputs, given, strict=False) if name]
        for array, expected in zip(present, outputs, strict=True):
            if DType.of(array.dtype) is not expected.dtype or array.shape != expected.shape:
                raise OperatorError(f"reference() gave {TensorType.of(array)}, infer() says {expected}")
    return present


def run_untyped(node: Node, values: Sequence[Any]) -> list[Any]:
    """Run the reference of an operator whose output shapes depend on data, or that takes sequences (lists), maps (dicts) or None.

    Returns the outputs that are present. Raises as `run_reference` does.
    """
    types = [TensorType.of(v) if isinstance(v, np.ndarray) else None for v in values]
    with node_context(node, types), np.errstate(all="ignore"):
        if len(values) == len([t for t in types if t is not None]):
            node.op.check(types, len(node.outputs))
        given = node.op.reference(*_padded(node, values))
        given = given if isinstance(given, tuple) else (given,)
        if len(given) < len(node.outputs):
            raise OperatorError(f"reference() gave {len(given)} outputs, the node has {len(node.outputs)}")
    contained = (list, dict, type(None))
    return [v if isinstance(v, contained) else np.asarray(v) for n, v in zip(node.outputs, given, strict=False) if n]
