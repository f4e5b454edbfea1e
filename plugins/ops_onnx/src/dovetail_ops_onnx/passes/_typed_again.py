"""Types and folds a graph for other input sizes in the order of an earlier time, without the questions answered then."""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass, fields_of
from dovetail.errors import DataDependentShape, raised_by_handler
from dovetail.graph import AbstractOperator, DType, Graph, Node, TensorType, as_constant
from dovetail.op import Operator
from dovetail.passes import chosen_branch, composition, drop_dead_nodes, inlined, schedule
from dovetail_ops_onnx._one_block import is_one_memory, made_once
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep

__all__ = ["Bodies", "TypedAgain", "operator_key"]

LARGE = 64
"""Elements from which on the content of a constant is not compared; one of numbers that cannot be sizes says nothing about types.
For `Arithmetic` it does not in any size: exporters write each activation as several products and sums with numbers. Nor do
scales and zero points, of which each value of a quantized model has its own.
"""

_BYTES = frozenset({DType.INT8, DType.UINT8})
"""Data types of whole numbers that are never sizes."""

PACKAGE = __name__.partition(".")[0]

Types = dict[str, TensorType]

Bodies = Mapping[str, tuple[Node, Graph]]
"""By name the nodes that were expanded, each with its body."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A node with what is asked of its operator; `missing` inputs at the end were left out. It was folded, or left out because
    its result was equal to its input, or neither. With a `branch` it is an `If` that chose this one, whose nodes follow. With a
    `body` it was expanded, and also writes all values of that. One that `waits` has results whose shapes depend on data.

    Steps of the same `kind` do the same with the same types of the values that they read besides constants.
    """

    node: Node
    infer: Callable[..., Any]
    missing: tuple[None, ...]
    is_folded: bool
    is_identity: bool
    kind: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    branch: Graph | None = None
    body: Graph | None = None
    waits: bool = False


class _Found:
    """The types of one time: by kind of step and identities of what it reads, and by content. `alive` are all of these."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], tuple[Sequence[TensorType], int]] = {}
        self.equal: dict[Hashable, TensorType] = {}
        self.alive: Sequence[TensorType] = ()

    def one(self, tensor: TensorType, last: "_Found") -> TensorType:
        """The object for types that are equal to this one and have equal contents."""
        key = _content(tensor)
        found = self.equal.get(key)
        if found is None:
            found = self.equal[key] = last.equal.get(key, tensor)
        return found

    def small(self) -> "_Found":
        """Without those that have a large content, which would keep arrays alive, and the steps that read or write these."""
        large = {id(t) for t in self.equal.values() if t.value is not None and t.value.size >= LARGE}
        if large:
            self.equal = {key: t for key, t in self.equal.items() if id(t) not in large}
            self.known = {
                key: found
                for key, found in self.known.items()
                if large.isdisjoint(key[1:]) and large.isdisjoint(map(id, found[0]))
            }
        self.alive = [*self.equal.values()]
        return self


@dataclass(frozen=True, slots=True)
class _Classes:
    """The class of each value: those that had the same types and contents each time so far. `steps` are those of different kinds
    or that read different classes, with how many there are of each. Models repeat their layers, so these are few.

    Where each of them writes one type for a class, the others write that too: types of all follow, by induction over the steps.
    """

    of: Mapping[str, int]
    steps: tuple[tuple[_Step, int], ...]

    @staticmethod
    def found(steps: Sequence[_Step], types: Types, before: "_Classes | None") -> "_Classes":
        """Those of `before`, divided by these types."""
        numbers: dict[Hashable, int] = {}
        last = {} if before is None else before.of
        names = dict.fromkeys(name for step in steps for name in (*step.reads, *step.writes))
        of = {name: numbers.setdefault((last.get(name), id(types[name])), len(numbers)) for name in names}
        first: dict[Hashable, _Step] = {}
        alike = [first.setdefault((step.kind, *[of[name] for name in step.reads]), step) for step in steps]
        counts = Counter(map(id, alike))
        return _Classes(of, tuple([(step, counts[id(step)]) for step in first.values()]))


@dataclass(frozen=True)
class TypedAgain:
    """The nodes of a prepared graph, as stage `type` left them for some sizes. `inner` are the types of the constants of branches
    that were chosen, and of those that compositions made of weights alone. `last` is what was found the last time: decoders get
    one more row in each run, and most of their values none. `varying` are constants that are others each time. `classes` is empty
    the first time.
    """

    steps: tuple[_Step, ...]
    inner: Types
    last: list[_Found]
    varying: tuple[str, ...]
    classes: list[_Classes]

    @staticmethod
    def of(
        graph: Graph,
        varying: Iterable[str],
        analyzed: Graph,
        bodies: Bodies,
        deferred: Sequence[Node] = (),
        containers: Container[str] = (),
    ) -> "TypedAgain | None":
        """`analyzed` is what became of `graph`, with `bodies` in place of nodes that were expanded, and without those deferred.
        `varying` are constants that have another content each time, `containers` values that are known to be no tensors.

        None where there is more to do than to infer, fold, leave out and expand.
        """
        late, unplanned = {name for node in deferred for name in node.writes}, {node.name for node in deferred}
        found, inner = _flattened(graph, analyzed, bodies)
        made_of_weights = ((n, a) for _, body in bodies.values() for n, a in body.constants.items() if made_once(a))
        inner.update((name, TensorType.of(array, known=True)) for name, array in made_of_weights)
        # What reads from these, or runs sub-graphs, waits in all sizes.
        found = [
            (node, branch)
            for node, branch in found
            if node.name not in unplanned or not (node.op.has_control() or late.intersection(node.reads))
        ]
        nodes = [node for node, branch in found if branch is None and node.name not in unplanned]
        before, types, left = {node.name: node for node in nodes}, analyzed.types, {node.name for node in analyzed.nodes}
        made = {node.name for _, body in bodies.values() for node in body.nodes}
        own = all(
            n.name in made or (n.name in before and before[n.name].op is n.op)
            for n in (*analyzed.nodes, *(node for node, _ in bodies.values()))
        )
        own = own and not any(n.post_ops for n in analyzed.nodes)
        if not own or any(node.op.has_control() or node.op.subgraphs or node.post_ops for node in nodes):
            return None
        if not all(name in types and types[name].is_static for node in nodes for name in node.writes):
            return None
        kinds: dict[Hashable, int] = {}
        alike: dict[Hashable, TensorType] = {}
        known = {**graph.constants, **inner}.keys() - set(varying)
        for node in [node for node, _ in found if node.name in unplanned]:
            if all(types[name].value is not None for name in node.reads) and not all(name in containers for name in node.writes):
                return None  # it would be computed if its result were not too large
        steps = [
            _choice(node, branch, known, kinds)
            if branch is not None
            else _wait(node, known, types, kinds, alike)
            if node.name in unplanned
            else _expansion(node, bodies[node.name][1], known, types, kinds, alike)
            if node.name in bodies
            else _step(node, known, types, node.name in left, kinds, alike)
            for node, branch in found
        ]
        return TypedAgain(tuple(steps), inner, [_Found()], tuple(varying), [])

    def types(self, graph: Graph, limit: int | None, budget: int) -> Types | None:
        """The types of all values; None where more or less is folded or left out now, and for a graph that is not valid.

        Models repeat their layers: what has the same inputs as before is not asked again. Types that are equal are one object,
        also from one time to the next.
        """
        types, last, now = {**graph.types, **self.inner}, self.last[0], _Found()
        for name, array in graph.constants.items():
            if types[name].value is None:  # an input of a loop's body that each iteration gets alike
                types[name] = TensorType.of(array, known=True)
        for name in (*graph.inputs, *self.varying):
            types[name] = now.one(types[name], last)
        try:
            with np.errstate(all="ignore"):
                for classes in self.classes[-1:]:
                    given = {name: types[name] for name in (*graph.inputs, *self.varying)}
                    if (found := _of_classes(classes, given, dict(types), now, last, limit, budget)) is not None:
                        self.last[0] = now.small()
                        return found
                for step in self.steps:
                    outputs, nbytes = _once(step, types, now, last, limit)
                    budget -= nbytes
                    if budget < 0:
                        return None
                    types.update(zip(step.writes, outputs, strict=True))
        except Exception as error:  # found again, and named, when everything is planned
            if raised_by_handler(error):
                raise
            return None
        self.classes[:] = [_Classes.found(self.steps, types, self.classes[-1] if self.classes else None)]
        self.last[0] = now.small()
        return types


def _once(step: _Step, types: Types, now: _Found, last: _Found, limit: int | None) -> tuple[Sequence[TensorType], int]:
    """As `_typed`, once for each kind of step and types that it reads."""
    key = (step.kind, *[id(types[name]) for name in step.reads])
    found = now.known.get(key)
    if found is None:
        found = last.known.get(key)
        if found is None:
            outputs, nbytes = _typed(step, types, limit)
            found = [now.one(t, last) for t in outputs], nbytes
        now.known[key] = found
    return found


def _of_classes(
    classes: _Classes, given: Types, types: Types, now: _Found, last: _Found, limit: int | None, budget: int
) -> Types | None:
    """The types of all values, by one step of each kind; None where values of a class differ, or folding takes too much.

    `given` are those that no step writes, besides constants.
    """
    of, known = classes.of, dict[int, TensorType]()
    for name, tensor in given.items():
        if name in of and known.setdefault(of[name], tensor) is not tensor:
            return None
    for step, count in classes.steps:
        for name in step.reads:
            types[name] = known[of[name]]
        outputs, nbytes = _once(step, types, now, last, limit)
        budget -= nbytes * count
        for name, tensor in zip(step.writes, outputs, strict=True):
            if known.setdefault(of[name], tensor) is not tensor:
                return None
    if budget < 0:
        return None
    types.update(zip(of, map(known.__getitem__, of.values()), strict=True))
    return types


def _content(tensor: TensorType) -> Hashable:
    """Equal for types that are equal and have equal contents."""
    value = tensor.value
    return (tensor.dtype, tensor.dims, None if value is None else value.tobytes() if value.size < LARGE else id(value))


class _Misfit(Exception):
    """Raised for a node that is typed in another way than before."""


def _flattened(graph: Graph, analyzed: Graph, bodies: Bodies) -> tuple[list[tuple[Node, Graph | None]], Types]:
    """The nodes in order, those of chosen branches behind the node that chose, with the branch; and the constants of branches.

    Of the nodes of bodies only those that were expanded, too.
    """
    waiting = [*reversed(drop_dead_nodes(schedule(graph)).nodes)]
    taken = {*graph.types, *graph.producers, *(node.name for node in graph.nodes)}
    found: list[tuple[Node, Graph | None]] = []
    inner: Types = {}
    while waiting:
        node = waiting.pop()
        known = {name: t.value for name in node.inputs if (t := analyzed.types.get(name)) is not None and t.value is not None}
        branch = chosen_branch(node, known)
        found.append((node, branch))
        if branch is not None:
            body = inlined(node, branch, taken)
            inner.update((name, TensorType.of(array, known=True)) for name, array in body.constants.items())
            waiting += reversed(schedule(body).nodes)
        elif node.name in bodies:
            waiting += [one for one in reversed(bodies[node.name][1].nodes) if one.name in bodies]
    return found, inner


def _choice(node: Node, branch: Graph, constants: Container[str], kinds: dict[Hashable, int]) -> _Step:
    reads = tuple([name for name in node.inputs if name and name not in constants])
    return _Step(node, id, (), False, False, kinds.setdefault((id(node.op), id(branch)), len(kinds)), reads, (), branch)


def _wait(
    node: Node,
    constants: Container[str],
    types: Mapping[str, TensorType],
    kinds: dict[Hashable, int],
    alike: dict[Hashable, Any],
) -> _Step:
    alone = _step(node, constants, {**dict.fromkeys(node.writes, TensorType(DType.FLOAT32, None)), **types}, True, kinds, alike)
    return replace(alone, kind=kinds.setdefault((alone.kind, "waits"), len(kinds)), writes=(), waits=True)


def _expansion(
    node: Node,
    body: Graph,
    constants: Container[str],
    types: Mapping[str, TensorType],
    kinds: dict[Hashable, int],
    alike: dict[Hashable, Any],
) -> _Step:
    own = {name: TensorType.of(array, known=True) for name, array in body.constants.items() if name not in constants}
    alone = _step(node, constants, types, True, kinds, alike, [*own.values()])
    kind = (alone.kind, *[operator_key(one.op) for one in body.nodes], *map(_content, own.values()))
    writes = dict.fromkeys([*node.writes, *own, *(name for one in body.nodes for name in one.writes)])
    return replace(alone, kind=kinds.setdefault(kind, len(kinds)), writes=tuple(writes), body=body)


def _step(
    node: Node,
    constants: Container[str],
    types: Mapping[str, TensorType],
    is_left: bool,
    kinds: dict[Hashable, int],
    alike: dict[Hashable, Any],
    computed: Sequence[TensorType] | None = None,
) -> _Step:
    """`computed` are the constants that the composition of a node that is expanded may make of sizes."""
    is_folded = all(types[name].value is not None for name in node.writes)
    missing = (None,) * (sum(not port.variadic for port in node.op.inputs) - len(node.inputs))
    is_identity = not (is_folded or is_left) and _is_identity(node, [types[name] for name in node.writes], types)
    # By the identity of the type for a constant; it is that of one of the same type where the content does not matter.
    inputs: list[Hashable] = []
    for name in node.inputs:
        fixed = types[name] if name in constants else None
        if fixed is not None:
            is_any = (
                (fixed.dtype.is_float or fixed.dtype in _BYTES)
                and not is_folded
                and _takes_any(node, fixed, is_identity, computed)
            )
            fixed = alike.setdefault((fixed.dtype, fixed.dims) if is_any else _content(fixed), fixed)
        inputs.append(bool(name) if fixed is None else (id(fixed),))
    kind = (operator_key(node.op), *inputs, None, *map(bool, node.outputs), is_folded, is_identity)
    reads = tuple([name for name in node.inputs if name and name not in constants])
    return _Step(node, node.op.infer, missing, is_folded, is_identity, kinds.setdefault(kind, len(kinds)), reads, node.writes)


def _takes_any(node: Node, constant: TensorType, is_identity: bool, computed: Sequence[TensorType] | None) -> bool:
    """Whether the types of the results are the same for any content but sizes, and nothing large is `computed` of it."""
    if computed is not None:
        return constant.size >= LARGE and all(one.size < LARGE for one in computed)
    if type(node.op).infer is Arithmetic.infer:
        return not is_identity
    if isinstance(node.op, DequantizeLinear | QuantizeLinear):
        return True
    return constant.size >= LARGE and node.op.package == PACKAGE


def operator_key(op: AbstractOperator) -> Hashable:
    """Equal for operators that give equal types for equal inputs."""
    if isinstance(op, Quantized):  # its scales do not count
        steps = [(operator_key(one.op), one.inputs) for one in op.steps if isinstance(one, QuantizedStep)]
        return type(op), *steps, *[one is None for one in op.scalings], op.result and op.result.dtype
    # Operators that passes make have fields in place of attributes.
    names = op.attributes if isinstance(op, Operator) else fields_of(type(op))
    if not names and getattr(op, "__dict__", None):
        return id(op)
    key = (type(op), *(getattr(op, name) for name in names))
    try:
        return key if hash(key) is not None else id(op)
    except TypeError:  # an attribute is an array
        return id(op)


def _is_identity(node: Node, outputs: Sequence[TensorType], types: Mapping[str, TensorType]) -> bool:
    inputs = [types[name] if name else None for name in node.inputs]
    return bool(node.inputs) and node.op.is_identity(inputs, outputs)


def _typed(step: _Step, types: Types, limit: int | None) -> tuple[Sequence[TensorType], int]:
    """The types of the outputs that are present, and the bytes of what was folded."""
    node = step.node
    inputs = [types[name] if name else None for name in node.inputs]
    if step.branch is not None:
        if node.op.chosen_graph([None if t is None else t.value for t in inputs]) is not step.branch:
            raise _Misfit
        return (), 0
    if step.waits:
        return _still_waits(step, inputs)
    given = step.infer(*inputs, *step.missing)
    if step.body is not None:
        return _expanded(step, step.body, types, given if isinstance(given, tuple) else (given,)), 0
    if not (step.is_folded or step.is_identity) and type(given) is TensorType and given.value is None and node.outputs[0]:
        if len(node.outputs) > 1 or (limit is not None and given.nbytes > limit):
            raise _Misfit
        return (given,), 0
    outputs: Sequence[TensorType] = given if isinstance(given, tuple) else (given,)
    if step.is_folded and any(t.value is None for t in outputs):
        outputs = _computed(step, inputs, outputs)
    elif not step.is_folded and all(t.value is not None for t in outputs):
        raise _Misfit
    if len(outputs) < len(node.outputs):
        raise _Misfit
    found = [t for name, t in zip(node.outputs, outputs, strict=False) if name]  # trailing ones may be left out
    sizes = [t.nbytes for t in found]
    if limit is not None and max(sizes, default=0) > limit:
        raise _Misfit
    if step.is_folded:
        return [TensorType.of(as_constant(t.value), known=True) for t in found], sum(sizes)
    if step.is_identity and not _is_identity(node, found, types):
        raise _Misfit
    return found, 0


def _still_waits(step: _Step, inputs: Sequence[TensorType | None]) -> tuple[Sequence[TensorType], int]:
    try:
        given = step.infer(*inputs, *step.missing)
    except DataDependentShape:
        return (), 0
    outputs = given if isinstance(given, tuple) else (given,)
    if all(t.is_static for name, t in zip(step.node.outputs, outputs, strict=False) if name):
        raise _Misfit
    return (), 0


def _expanded(step: _Step, body: Graph, types: Types, outputs: Sequence[TensorType]) -> Sequence[TensorType]:
    """The types of the node's outputs, and of the values of its body."""
    node = step.node
    given = {name: types[name] for name in node.inputs if name}
    known = {name: tensor.value for name, tensor in given.items() if tensor.value is not None}
    given.update((name, tensor) for name, tensor in zip(node.outputs, outputs, strict=False) if name)
    found = composition(node, given, known, body.name)
    if _described(found) != _described(body) or found.constants.keys() - known.keys() != body.constants.keys():
        raise _Misfit
    fixed = body.constants.keys() - set(step.writes)
    if not all(is_one_memory(body.constants[name], found.constants[name]) for name in fixed):
        raise _Misfit
    # What is made of weights is what it was; devices know it as the same array.
    large = {name: array for name, array in body.constants.items() if name not in fixed and array.size >= LARGE}
    same = {name: array for name, array in large.items() if np.array_equal(array, found.constants[name])}
    return [TensorType.of(same[name], known=True) if name in same else found.types[name] for name in step.writes]


def _described(body: Graph) -> Sequence[object]:
    return [(n.name, type(n.op), [getattr(n.op, a) for a in n.op.attributes], n.inputs, n.outputs) for n in body.nodes]


def _computed(step: _Step, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Sequence[TensorType]:
    """The outputs with their content, by the operator's reference."""
    values = [None if t is None else t.value for t in inputs]
    if any(t is not None and t.value is None for t in inputs):
        raise _Misfit
    given = step.node.op.reference(*values, *step.missing)
    arrays = [np.asarray(array) for array in (given if isinstance(given, tuple) else (given,))]
    found = [TensorType.of(array, known=True) for array in arrays]
    if any(a.dtype is not b.dtype or (b.is_static and a.shape != b.shape) for a, b in zip(found, outputs, strict=False)):
        raise _Misfit
    return found
