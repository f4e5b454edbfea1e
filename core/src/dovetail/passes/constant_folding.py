"""Type inference and constant folding, in one walk: shapes depend on values, and values can only be computed once typed."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.devices.work_budget import current_budget
from dovetail.errors import DataDependentShape, OperatorError, OutOfMemory
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import check_limit, counted, infer_node, inferred, least_bytes, padded
from dovetail.evaluate.reference import run_reference, run_untyped
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.rewriting import with_constants
from dovetail.graph.schedule import schedule
from dovetail.graph.types import CONTAINERS, TensorType, array_bytes, as_constant, one_of

__all__ = ["FOLD_BUDGET", "Typed", "fold_closed", "fold_constants", "type_and_fold"]

FOLD_BUDGET = 64 << 20
"""Bytes of new constants that one graph may get on top of four times those it has: a small file must not unfold to gigabytes."""

_UNKNOWN = TensorType(DType.FLOAT32, None)
"""In place of a type of which nothing is known."""

_ROUNDS = 8
"""How often `fold_closed` looks whether what it has forgotten gives room for more."""


@dataclass(frozen=True)
class Typed:
    """A graph in schedule order with the type of every value, and the nodes that could not be typed before data is there.

    `deferred` are the nodes whose output shapes depend on data, which run sub-graphs or take sequences, and all that read
    from these, in schedule order. `late` has what is known of the types of their outputs.
    """

    graph: Graph
    deferred: tuple[Node, ...] = ()
    late: Mapping[str, TensorType] = field(default_factory=dict)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """The types of the outputs, open as far as they are not known."""
        return tuple([_known(name, self.graph.types, self.late) for name in self.graph.outputs])


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


def fold_closed(graph: Graph, budget: int, limit: int | None) -> Graph:
    """The bound graph without the nodes that depend on constants alone; input shapes may be open.

    A graph with operators that are composed of the graph around them stays as it is: these must see it as the model has it.
    Raises as `type_and_fold`.
    """
    if any(cls.has_compose_in() for cls in graph.op_classes):
        return graph
    most = budget + 5 * _nbytes(graph)
    for _ in range(_ROUNDS):
        # What only folded nodes read is forgotten in between, and its room is there for others.
        graph, is_done = _folded_once(graph, most, limit)
        if is_done:
            break
    return graph


def _nbytes(graph: Graph) -> int:
    return sum(array.nbytes for array in graph.constants.values())


def _folded_once(graph: Graph, most: int, limit: int | None) -> tuple[Graph, bool]:
    """As `fold_closed`, for constants of so many bytes in all; and whether nothing is left, or no more has room."""
    known, closed = set(graph.constants), []
    for node in schedule(graph).nodes:
        if known.issuperset(node.reads) and not (node.op.is_random or node.op.subgraphs):
            closed.append(node)
            known.update(node.writes)
    if not closed:
        return graph, True
    written = tuple(name for node in closed for name in node.writes)
    room = most - _nbytes(graph)
    typed = type_and_fold(graph.replace(nodes=tuple(closed), inputs=(), outputs=written), room - 4 * _nbytes(graph), limit)
    done = {node.name for node in closed} - {node.name for node in (*typed.graph.nodes, *typed.deferred)}
    nodes = tuple(node for node in graph.nodes if node.name not in done)
    read = {*graph.outputs, *(name for node in nodes for name in node.reads)}
    constants = {name: array for name, array in typed.graph.constants.items() if name in read}
    return with_constants(graph.replace(nodes=nodes, constants={}), constants), len(done) in (0, len(closed))


def _branch_taken(node: Node, constants: Mapping[str, NDArray[Any]], values: Set[str], graph: Graph) -> Graph | None:
    """The branch of an If whose condition is known, to be put in its place; None for other nodes. `values` are typed so far."""
    from dovetail.passes.inline import chosen_branch, inlined  # here, because few models have sub-graphs

    branch = chosen_branch(node, constants)
    return branch and inlined(node, branch, {*values, *graph.producers, *(n.name for n in graph.nodes)})


def type_and_fold(graph: Graph, budget: int = FOLD_BUDGET, limit: int | None = None, *, through: bool = False) -> Typed:
    """The graph without the nodes whose results are known already, and apart from it what has to wait for data.

    All inputs must have static types, or be sequences or optionals. Folded results become constants; an `If` whose condition
    is known becomes the nodes of its branch. `limit` is the greatest size in bytes that a single value may have. With `through`
    the late types are also those of sub-graphs and of what reads their results, which takes a walk over each. Raises
    `OperatorError` or `ShapeError` naming the node, and `OutOfMemory` for a value over the limit.
    """
    graph = schedule(graph)
    _check_inputs(graph, limit)  # first: inference may allocate as much as one axis of an input
    types, constants, kept = dict(graph.types), dict(graph.constants), []
    late = {name: types[name] for name in graph.inputs if not types[name].is_static}
    deferred: list[Node] = []
    room = budget + 4 * sum(array.nbytes for array in constants.values())
    waiting, work = deque(graph.nodes), current_budget()
    while waiting:
        node = waiting.popleft()
        if "" in node.outputs:
            node = _with_required(node, graph)
        if work is not None:
            work.check(node)
        body = _branch_taken(node, constants, {*types, *late}, graph) if node.op.subgraphs else None
        if body is not None:
            constants.update(body.constants)
            types.update(body.types)
            waiting.extendleft(reversed(schedule(body).nodes))
            continue
        known = partial(_known, types=types, late=late) if late else types.__getitem__
        inputs = [known(name) if name else None for name in node.inputs]
        waits = node.op.has_control() or (late and not late.keys().isdisjoint(node.reads))
        outputs = None if waits else _static_types(node, inputs, limit)
        folded = _fold(node, outputs, constants, room)
        if folded is not None:
            outputs = tuple(TensorType.of(array, known=True) for array in folded)
            constants.update(zip(node.writes, folded, strict=True))
            room -= sum(map(array_bytes, folded))
        elif outputs is not None:
            kept.append(node)
        else:
            deferred.append(node)
            late.update(_late_types(node, inputs))
            if through:
                late.update(_through(node, inputs, known, constants, (room, limit)))
            continue
        types.update(zip(node.writes, outputs, strict=True))
    return Typed(graph.replace(nodes=tuple(kept), constants=constants, types=types), tuple(deferred), late)


def _known(name: str, types: Mapping[str, TensorType], late: Mapping[str, TensorType]) -> TensorType:
    """The type of a value: of late ones the inferred type, and the one that the model declares where that is open."""
    declared, found = types.get(name), late.get(name)
    if declared is None:
        return late[name]
    if found is None or found.shape is None:
        return declared
    if type(declared) is not type(found) or declared.dtype is not found.dtype or len(declared.shape or ()) != len(found.shape):
        return found
    return found.with_shape(tuple([d if a is None else a for a, d in zip(found.shape, declared.shape or (), strict=True)]))


def _with_required(node: Node, graph: Graph) -> Node:
    """The node with names for outputs that models may not leave out, and do: devices have kernels without optional ones only."""
    ports = node.op.outputs
    names = [
        name or ("" if port.optional or port.variadic else graph.free_name(f"{node.name}.{port.name}"))
        for name, port in zip(node.outputs, ports, strict=False)
    ]
    return replace(node, outputs=(*names, *node.outputs[len(ports) :]))


def _check_inputs(graph: Graph, limit: int | None) -> None:
    for name in graph.inputs:
        t = graph.types[name]
        if limit is not None and t.is_static and (nbytes := least_bytes(t)) > limit:
            raise OutOfMemory(
                f"input {name!r} is {t}, which takes {nbytes:,} bytes{counted(t)}; the limit is {limit:,}",
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
    """The output types of a deferred node: containers keep their kind, the rest is open."""
    unknown = dict.fromkeys(node.writes, _UNKNOWN)
    contains = any(isinstance(t, CONTAINERS) for t in inputs)
    is_text = any(t is not None and t.dtype is DType.STRING for t in inputs)
    if not contains and not _is_typed(inputs) and not is_text:
        return unknown
    if node.op.has_control():
        if not contains:
            with node_context(node, inputs):
                node.op.check(inputs, len(node.outputs))
        return unknown
    is_exact = contains or _is_typed(inputs)
    try:
        with node_context(node, inputs):
            # Of strings the type alone counts, by which the host runs what follows; it does not depend on sizes.
            given = node.op.infer(*padded(inputs if is_exact else [t and _with_sizes(t) for t in inputs], node.op.inputs))
    except OperatorError:  # such as DataDependentShape; what is wrong with the node is said when it runs
        return unknown
    outputs = given if isinstance(given, tuple) else (given,)
    # A node may leave out trailing outputs.
    found = {name: t for name, t in zip(node.outputs, outputs, strict=False) if name}
    return unknown | (found if is_exact else {name: t.with_shape(t.shape and (None,) * t.rank) for name, t in found.items()})


def _through(
    node: Node,
    inputs: Sequence[TensorType | None],
    known: Callable[[str], TensorType],
    constants: Mapping[str, NDArray[Any]],
    bounds: tuple[int, int | None],
) -> dict[str, TensorType]:
    """The output types of a deferred node from its sub-graphs, or from inputs of which some sizes are open: empty if unknown."""

    def inner(graph: Graph, arguments: Sequence[TensorType | None]) -> Sequence[TensorType | None]:
        pairs = zip(graph.inputs, arguments, strict=True)
        given = {name: t or graph.types.get(name) or _UNKNOWN for name, t in pairs} | {n: known(n) for n in graph.captures}
        fixed = {name: constants[name] for name in graph.captures if name in constants}
        inputs = tuple(name for name in given if name not in fixed)
        whole = graph.replace(inputs=inputs, types={**graph.types, **given}, constants={**graph.constants, **fixed})
        try:
            return type_and_fold(whole, *bounds, through=True).output_types
        except (OperatorError, OutOfMemory):  # what is wrong with a node is said when it runs
            return [graph.types.get(name) for name in graph.outputs]

    try:
        if node.op.has_control():
            with node_context(node, inputs):
                found = node.op.control_types(inner, *padded(inputs, node.op.inputs))
            return {name: t for name, t in zip(node.outputs, found, strict=False) if name and t is not None}
        if _is_typed(inputs) or any(t is not None and (t.shape is None or isinstance(t, CONTAINERS)) for t in inputs):
            return {}
        # A size that does not follow those that are open is the same for any two of them.
        one, other = (inferred(node, [t and _with_sizes(t, size) for t in inputs]) for size in (1, 2))
    except (OperatorError, OutOfMemory):  # what is wrong with a node is said when it runs
        return {}
    return {name: t for name, a, b in zip(node.writes, one, other, strict=True) if (t := one_of(a, b)) is not None}


def _with_sizes(tensor: TensorType, size: int = 1) -> TensorType:
    """The type with such sizes where they are open."""
    shape = tensor.shape
    if shape is None or tensor.is_static:
        return tensor
    return tensor.with_shape(tuple(d if isinstance(d, int) else size for d in shape))


def _is_typed(inputs: Sequence[TensorType | None]) -> bool:
    return all(t is None or t.is_static for t in inputs)


def _fold(
    node: Node, outputs: Sequence[TensorType] | None, constants: Mapping[str, NDArray[Any]], room: int
) -> list[NDArray[Any]] | None:
    """The outputs, if inference already knows them or all inputs are constants, and if there is room for them."""
    known = [t.value for t in outputs or () if t.value is not None]
    computed = outputs is not None and len(known) == len(outputs)
    if not computed:
        for name in node.inputs:  # in half the time of any(): asked of every node
            if name and name not in constants:
                return None
    if outputs is not None and sum(t.nbytes for t in outputs) > room:
        return None
    if computed:
        return [as_constant(array) for array in known]
    if node.op.is_random or node.op.subgraphs or not (node.op.has_reference() or node.op.has_composition()):
        return None
    values = [constants[name] if name else None for name in node.inputs]
    if outputs is not None:
        given = run_reference(node, values, outputs)
        return [as_constant(array) for array in given] if sum(map(array_bytes, given)) <= room else None
    given = run_untyped(node, values)
    fits = all(isinstance(v, np.ndarray) for v in given) and sum(map(array_bytes, given)) <= room
    return [as_constant(array) for array in given] if fits else None
