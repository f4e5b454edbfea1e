"""Runs a node on the host again and again: what depends on the types of its inputs alone is found once for each."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from dovetail.devices.interruptible import Call, Pace
from dovetail.errors import DataDependentShape, DovetailError, raised_by_handler
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import inferred, least_bytes, padded
from dovetail.graph.dtype import DType
from dovetail.graph.types import TensorType
from dovetail.operators.operator import Operator
from dovetail.planning.deferred import compute
from dovetail.planning.plan import HostStep

__all__ = ["HostNode"]

_MANY, _MANY_STRINGS = 1_000_000, 5_000
"""Elements that a node on the host reads, from which on it may take long."""

_KEPT = 512
"""Types of inputs for which those of results are kept, for each operator."""

_SMALL = 16
"""Whole numbers of an input up to which their content is part of what the types of results are kept for, such as bounds."""

_WHOLE = {"i": _SMALL, "u": _SMALL, "b": _SMALL}
_WITH_FLOATS = _WHOLE | {"f": 1}
"""The same by kinds of numbers; with single floats, such as the limit of a Range, where whole numbers are not enough."""

Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""Data type and shape of an array."""

_BY_CONTENT: tuple[Kind, ...] = ()
"""In place of the types of results that depend on the content of inputs."""

_OPEN: tuple[Kind, ...] = ((np.dtype(np.void), ()),)
"""In place of those whose sizes only the reference finds, such as the number of elements that are not zero."""


class _KnownTypes:
    """Types of results by those of inputs, shared by nodes of equal operators, such as those of a model's layers.

    Threads may share it: whatever is kept follows from its key.
    """

    __slots__ = ("__weakref__", "bounded", "by_content", "by_others", "checked", "constants", "results")

    def __init__(self, constants: Sequence[Any]) -> None:
        # By types of inputs: those of the results, as `HostNode._expected`, and whether there are many elements.
        self.results: dict[tuple[Kind | None, ...], tuple[tuple[Kind, ...] | None, bool]] = {}
        # By types of inputs and the content of small ones, which loops repeat.
        self.bounded: dict[tuple[Any, ...], tuple[Kind, ...]] = {}
        # Data types and ranks of inputs with which types of results depend on content: to raise that takes longer than the node.
        self.by_content: set[tuple[Any, ...]] = set()
        # Data types and ranks of inputs that the operator takes: what differs later is only what `infer` looks at.
        self.checked: set[tuple[Any, ...]] = set()
        # Types of inputs with which they depend on the content of others than small ones of whole numbers.
        self.by_others: set[tuple[Kind | None, ...]] = set()
        self.constants = constants  # whose addresses are part of the key

    @staticmethod
    def of(step: HostStep) -> "_KnownTypes":
        """Those of the nodes that have the same results for the same types of inputs."""
        node, constants = step.node, [source if isinstance(source, np.ndarray) else None for source in step.reads]
        present = tuple(map(bool, node.inputs)), tuple(map(bool, node.outputs))
        op = (
            (type(node.op), *[getattr(node.op, name) for name in node.op.attributes])
            if isinstance(node.op, Operator)
            else node.op
        )
        key = (op, *present, step.limit, step.gives_containers, *map(_content, constants))
        try:
            found = _KNOWN.get(key)
        except TypeError:  # an attribute without a hash, such as an array
            return _KnownTypes(constants)
        if found is None:
            found = _KNOWN[key] = _KnownTypes(constants)
        return found


_KNOWN: WeakValueDictionary[tuple[Any, ...], _KnownTypes] = WeakValueDictionary()


def _content(constant: Any) -> Any:
    """The part of a constant in the key: the content of a small one, the address of others."""
    if constant is None or constant.size > _SMALL or constant.dtype.kind == "O":
        return constant if constant is None else id(constant)
    return constant.dtype, constant.shape, constant.tobytes()


class HostNode:
    """The calls of a node on the host, by its reference, in one request. NumPy's warnings are off where it is called."""

    def __init__(self, step: HostStep) -> None:
        node = step.node
        self._step, self._pace, self._reference = step, Pace(f"node {node}"), node.op.reference
        self._reads = step.reads
        self._missing = padded([], node.op.inputs)[len(step.reads) :]
        self._has_all = all(node.outputs)
        self._constants = [isinstance(source, np.ndarray) for source in step.reads]
        self._known = _KnownTypes.of(step)

    def __call__(self, slots: Sequence[Any]) -> list[Any]:
        """The outputs that are present, of inputs in these slots.

        Raises as `compute`, `RunCancelled` and `TimeLimitExceeded`, in the middle of it too.
        """
        values = [slots[source] if type(source) is int else source for source in self._reads]
        kinds = tuple([(v.dtype, v.shape) if type(v) is np.ndarray else None for v in values])
        kept = self._known.results
        known = kept.get(kinds)
        if known is None:
            if len(kept) >= _KEPT:
                kept.clear()
                self._known.by_others.clear()
            known = kept[kinds] = self._expected(kinds, values), _are_many(values)
        (expected, are_many), step, pace = known, self._step, self._pace
        if pace.is_long(are_many):
            found: list[Any] = pace.make(Call(lambda: compute(step, values)), may_be_long=True)
            return found
        started = perf_counter()
        results = compute(step, values) if expected is None else self._computed(expected, kinds, values)
        pace.took(perf_counter() - started)
        return results

    def _computed(self, expected: tuple[Kind, ...], kinds: tuple[Kind | None, ...], values: Sequence[Any]) -> list[Any]:
        node, is_open = self._step.node, expected is _OPEN
        try:
            types = None if is_open else expected or self._by_content(kinds, values)
            given = self._reference(*values, *self._missing) if is_open or types is not None else None
        except (Exception, SystemExit):
            with node_context(node, (None if v is None else TensorType.of(v) for v in values)):
                raise
        if type(given) is np.ndarray and self._has_all and types == ((given.dtype, given.shape),):
            return [given]
        # References and `infer` may give outputs that the node leaves out at the end.
        results = given[: len(node.outputs)] if type(given) is tuple else (given,)
        if is_open and self._are_plain(results):
            return list(results)
        if types is not None and self._has_all and len(results) == len(types):
            arrays = [v if type(v) is np.ndarray else np.asarray(v) for v in results]
            if tuple([(v.dtype, v.shape) for v in arrays]) == types:
                return arrays
        return compute(self._step, values)  # which says what is wrong, and takes whatever is rare

    def _are_plain(self, results: Sequence[Any]) -> bool:
        """Whether all outputs are there, as arrays of numbers that are below the limit together."""
        if not self._has_all or len(results) != len(self._step.node.outputs):
            return False
        return all(type(v) is np.ndarray and v.dtype.kind != "O" for v in results) and (
            sum(v.nbytes for v in results) <= self._step.limit
        )

    def _by_content(self, kinds: tuple[Kind | None, ...], values: Sequence[Any]) -> tuple[Kind, ...] | None:
        """As `_expected`, with the content of inputs of types that the operator takes; None where the data is not enough."""
        by_others = kinds in self._known.by_others
        sizes = _WITH_FLOATS if by_others else _WHOLE
        small = [v if v is not None and v.size <= sizes.get(v.dtype.kind, -1) else None for v in values]
        key = (kinds, *[None if v is None else v.tobytes() for v in small])
        kept = self._known.bounded
        found = kept.get(key)
        if found is None:
            is_enough = not by_others or all(v is None or known is not None for v, known in zip(values, small, strict=True))
            found = self._kinds(self._inferred(values, small)) if is_enough else None
            if found is None and not by_others:  # it depends on the content of others, or is refused
                self._known.by_others.add(kinds)
                return self._by_content(kinds, values)
            if found is None:
                types = self._inferred(values, values)
                if any(not t.is_static for t in types):
                    self._known.results[kinds] = _OPEN, _are_many(values)
                return self._kinds(types)
            if len(kept) >= _KEPT:
                kept.clear()
            kept[key] = found
        return found

    def _inferred(self, values: Sequence[Any], known: Sequence[Any]) -> Sequence[TensorType]:
        """The result of `infer`, with the content of the `known` inputs; none where it needs more."""
        types = [None if v is None else TensorType(DType.of(v.dtype), v.shape, k) for v, k in zip(values, known, strict=True)]
        try:
            return self._given(types)
        except DataDependentShape:
            return ()

    def _again(self, types: Sequence[TensorType | None]) -> tuple[Kind, ...] | None:
        """As `_expected`, for types of data types and ranks that the operator takes; None where `inferred` has to look."""
        try:
            return self._kinds(self._given(types))
        except (Exception, SystemExit) as error:  # of `infer`, or of what it gave; raised again with the node
            if raised_by_handler(error):
                raise
            return None

    def _given(self, types: Sequence[TensorType | None]) -> Sequence[TensorType]:
        """The result of `infer` for types that the operator takes; none where it gives another number."""
        given, node = self._step.node.op.infer(*types, *self._missing), self._step.node
        found = given if isinstance(given, tuple) else (given,)
        count = len(node.outputs)
        if len(found) < count or (len(found) > count and node.op.outputs[-1].variadic):
            return ()  # `compute` raises the error
        return found[:count]

    def _expected(self, kinds: Sequence[Kind | None], values: Sequence[Any]) -> tuple[Kind, ...] | None:
        """Data types and shapes of the results, which are below the limit together; None where they depend on more
        than types, `_BY_CONTENT` where on the content of inputs.
        """
        step = self._step
        named = all(kind is not None or not name for kind, name in zip(kinds, step.node.inputs, strict=True))
        if step.gives_containers or not named or any(kind is not None and kind[0].kind == "O" for kind in kinds):
            return None
        ranks = tuple([None if kind is None else (kind[0], len(kind[1])) for kind in kinds])
        if ranks in self._known.by_content:
            return _BY_CONTENT
        types = [
            None if kind is None else TensorType(DType.of(kind[0]), kind[1], value if is_constant else None)
            for kind, value, is_constant in zip(kinds, values, self._constants, strict=True)
        ]
        try:
            if ranks in self._known.checked and (found := self._again(types)) is not None:
                return found
            outputs = inferred(step.node, types)
            self._known.checked.add(ranks)
        except DataDependentShape:
            self._known.by_content.add(ranks)
            return _BY_CONTENT
        except DovetailError:
            return None
        return self._kinds(outputs) or (_BY_CONTENT if any(not t.is_static for t in outputs) else None)

    def _kinds(self, types: Sequence[TensorType]) -> tuple[Kind, ...] | None:
        """Data types and shapes; None for no types, and those that are open, of strings, or over the limit together."""
        found, nbytes = list[Kind](), 0
        for one in types:
            if not one.is_static or one.dtype is DType.STRING:
                return None
            nbytes += least_bytes(one)
            found.append((one.dtype.numpy, one.dims))
        return tuple(found) if found and nbytes <= self._step.limit else None


def _are_many(values: Sequence[Any]) -> bool:
    """Whether there are so many elements that a node may take long."""
    share = 0.0
    for value in values:
        if isinstance(value, np.ndarray) and (size := value.size) > 1:
            share += size / (_MANY_STRINGS if value.dtype.kind == "O" else _MANY)
    return share > 1
