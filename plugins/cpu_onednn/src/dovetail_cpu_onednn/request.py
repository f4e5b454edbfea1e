"""One inference at a time: an arena, and a flat tuple of executions bound to it."""

import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import (
    ExecutableRequest,
    Mark,
    Node,
    OutOfMemory,
    PartRecorder,
    WorkBudget,
    by_node,
    clock,
    current_budget,
)
from dovetail.errors import DovetailError, InferError
from dovetail_cpu_onednn.binder import Binder, Output, move
from dovetail_cpu_onednn.binding import Launch, Memory
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import refused
from dovetail_cpu_onednn.python_kernel import Array, Call, in_turn

if TYPE_CHECKING:
    from dovetail_cpu_onednn.executable import OnednnExecutable

__all__ = ["CLOSED", "OnednnRequest"]

COPIED = 1 << 13
"""Bytes of an input up to which copying it, 0.3 us, takes less time than telling primitives its address, 1.4 us each."""

_UNLIMITED = WorkBudget()

_NOTHING: Array = np.empty(0, np.uint8)

CLOSED = "ONEDNN: the compiled model or the request was closed"


class OnednnRequest(ExecutableRequest):
    """One arena, and the executions bound to it. `strict`: nodes that may turn infinity into NaN run as references."""

    def __init__(self, executable: "OnednnExecutable", strict: bool = False) -> None:
        self._executable = executable
        self._is_strict = strict
        self._strict: OnednnRequest | None = None
        self._states = tuple((executable.graph.inputs.index(name), name) for name in executable.graph.states)
        self._given: tuple[Array, ...] = ()
        self._is_open = True
        self._arena = np.empty(0, np.uint8)
        self._state = _quiet_state()
        self._bound: _Bound | None = None if self._states else self._bind({})
        self._by_node: _ByNode | None = None
        self.fresh = self._bound is not None and bool(self._bound.new)

    def _bind(self, states: Mapping[str, Array]) -> "_Bound":
        """Bind the executions to an arena, and to the arrays of states."""
        executable = self._executable
        binder = Binder(executable, self._is_strict, states)
        self._arena = binder.arena
        self._given = tuple(states.values())
        graph = executable.graph
        bound = [(launch, p.node.node, p.threads) for p in executable.placements for launch in binder.launches(p)]
        if bound:
            library().plan_threads(executable.shared_by)
            final = binder.nan_checks(executable.final_nan_checks)
            bound += [(launch, bound[-1][1], executable.shared_by) for launch in final]
        calls, ends_with = _calls([(launch, threads) for launch, _, threads in bound], executable.shared_by)
        storage = executable.memory.storage
        new = {} if states else {i: binder.output(n) for i, n in enumerate(graph.outputs) if binder.is_new(n)}
        outputs = tuple(
            _NOTHING if i in new else _as_given(binder.array(name), states.get(storage[name]))
            for i, name in enumerate(graph.outputs)
        )
        # What only primitives read need not be copied: they get the caller's address at every run.
        large = [name for name in graph.inputs if name not in states and graph.types[name].nbytes > COPIED]
        borrowed = {name: binder.readers.get(name, []) for name in large if name not in binder.arrays}
        in_python = any(not isinstance(launch, Launch) for launch, _, _ in bound)
        return _Bound(
            calls=calls,
            nodes=tuple(node for _, node, _ in bound),
            in_python=in_python,
            is_plain=not (in_python or borrowed or new or executable.checks_values),
            outputs=outputs,
            new=new,
            borrowed=tuple((i, tuple(borrowed[n])) for i, n in enumerate(graph.inputs) if n in borrowed),
            lent=tuple((i, n) for i, n in enumerate(graph.inputs) if n in binder.lent),
            given=binder.given,
            copied=tuple((i, binder.array(n)) for i, n in enumerate(graph.inputs) if n not in borrowed and n not in states),
            large=binder.large,
            with_nan=binder.with_nan,
            kept=[binder, *(launch for launch, _, _ in bound)],
            begin=partial(library().set_threads, executable.shared_by),  # of the calling thread, whichever that is
            end=None if ends_with == executable.threads else library().changes_threads(executable.threads),
        )

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Copy the inputs in, execute every primitive.

        Raises `InferError` naming the node in which something failed, or because the request is closed; `OutOfMemory`.
        """
        bound = self._bound_to(inputs) if self._states else self._bound
        if bound is None:
            raise InferError(CLOSED)
        try:
            if bound.is_plain:  # as `_run`, in fewer steps: they count where nodes take less than a microsecond
                bound.begin()
                for index, staging in bound.copied:
                    staging[...] = inputs[index]
                self._call_all(bound)
                if bound.end is not None:
                    bound.end()
                return bound.outputs
            outputs = self._run(bound, inputs, self._call_all)
            return self._run_strictly(inputs) if bound.with_nan else outputs
        except MemoryError as error:
            raise refused(error) from error

    def _bound_to(self, inputs: Sequence[Array]) -> "_Bound | None":
        """The executions, bound to the arrays of states among these inputs; None after `close`."""
        if self._states and self._is_open:
            given = {name: inputs[index] for index, name in self._states}
            if len(given) != len(self._given) or any(a is not b for a, b in zip(given.values(), self._given, strict=True)):
                self._bound, self._by_node = self._bind(given), None
        return self._bound

    def run_traced(self, inputs: Sequence[Array], recorder: PartRecorder) -> Sequence[Array]:
        """As `run`, with a slice for each node."""
        bound = self._bound_to(inputs)
        if bound is None:
            return self.run(inputs)
        traced = self._by_node
        if traced is None or traced.recorder is not recorder:
            traced = self._by_node = _ByNode.of(bound, recorder)
        traced.stamp(clock())
        try:
            outputs = self._run(bound, inputs, self._call_by_node)
            if not bound.with_nan:
                recorder.add(traced.marks)
                return outputs
            outputs = self._run_strictly(inputs)
        except MemoryError as error:
            raise refused(error) from error
        traced.stamp(clock())
        recorder.add((*traced.marks, Mark("kernel", text="all nodes once more, because of NaN")))
        return outputs

    def _run(self, bound: "_Bound", inputs: Sequence[Array], call: "Callable[[_Bound], None]") -> Sequence[Array]:
        # The number of threads belongs to the calling thread, whichever that is.
        bound.begin()
        for index, staging in bound.copied:
            staging[...] = inputs[index]
        for index, memories in bound.borrowed:
            move(memories, inputs[index])
        new = {index: output.make() for index, output in bound.new.items()} if bound.new else None
        bound.large.clear()
        bound.with_nan.clear()
        for index, name in bound.lent:
            bound.given[name] = inputs[index]
        try:
            if not bound.in_python:
                call(bound)
            elif self._state is not None:
                self._state.run(call, bound)
            else:
                with np.errstate(all="ignore"):
                    call(bound)
        finally:
            bound.given.clear()
        if bound.end is not None:
            bound.end()
        return [new[i] if i in new else array.copy() for i, array in enumerate(bound.outputs)] if new else bound.outputs

    def _run_strictly(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Repeat the run, in other memory: the first one may have turned infinity into NaN."""
        strict = self._strict
        if strict is None:
            strict = self._strict = OnednnRequest(self._executable, strict=True)
        outputs = strict.run(inputs)
        return [array.copy() for array in outputs] if self.fresh and not strict.fresh else outputs

    def _call_all(self, bound: "_Bound") -> None:
        calls, budget = iter(bound.calls), current_budget() or _UNLIMITED
        try:
            for call in calls:
                if (status := call()) or budget.deadline is not None:
                    if status:
                        library().check(status, "primitive_execute")
                    if budget.deadline is not None and perf_counter() > budget.deadline:
                        break
            else:
                return
        except Exception as error:
            raise self._located(error, bound.nodes[-operator.length_hint(calls) - 1]) from error
        if remaining := operator.length_hint(calls):
            budget.check(bound.nodes[-remaining - 1])

    def _call_by_node(self, bound: "_Bound") -> None:
        """As `_call_all`, with a stamp before the first node and after each, where the budget is looked at."""
        traced = self._by_node
        assert traced is not None
        calls, stamp, budget = iter(traced.calls), traced.stamp, current_budget() or _UNLIMITED
        stamp(clock())
        try:
            for call in calls:
                status = call()
                stamp(clock())
                if status:
                    library().check(status, "primitive_execute")
                if budget.deadline is not None and perf_counter() > budget.deadline:
                    break
        except Exception as error:
            raise self._located(error, traced.nodes[-operator.length_hint(calls) - 1]) from error
        if remaining := operator.length_hint(calls):
            budget.check(traced.nodes[-remaining - 1])

    def close(self) -> None:
        """Free the arena and everything bound to it, at once or at the end of the run in progress."""
        self._is_open = False
        self._bound = self._strict = self._by_node = None
        self._given = ()
        self._arena = np.empty(0, np.uint8)

    def _located(self, error: Exception, node: Node) -> InferError:
        if isinstance(error, MemoryError | OutOfMemory):
            return refused(error, node)
        if isinstance(error, DovetailError):
            return InferError(f"ONEDNN, node {node}: {error.message}", hint=error.hint)
        return InferError(f"ONEDNN, node {node}: {type(error).__name__}: {error}")


def _as_given(array: Array, state: Array | None) -> Array:
    """A state that was written where it is, as it was given, which tells that nothing is left to copy; else the array."""
    return state if state is not None and (state.shape, state.dtype) == (array.shape, array.dtype) else array


def _quiet_state() -> Context | None:
    """A context in which NaN and infinities are results like others for NumPy. To enter it takes 0.1 us, `np.errstate` 1.7.

    None before NumPy 2, whose settings belong to the thread.
    """
    state, before = Context(), np.geterr()
    state.run(np.seterr, all="ignore")
    if np.geterr() != before:
        np.seterr(**before)
        return None
    return state


@dataclass(frozen=True, slots=True)
class _Bound:
    """Everything that a run uses. While a thread holds it, the memory that primitives read and write stays alive.

    `is_plain`: calls of primitives are all, besides copying inputs. `borrowed` are inputs that only primitives read, which get
    the caller's address, `lent` those that kernels in Python find in `given` during a run; `copied` those that have a place of
    their own. `new` are outputs that only primitives touch, for which each run makes an array; `outputs` has an empty array in
    their place. `large` and `with_nan` are those of the binder. `kept`
    are it and the launches, whose calls hold bare addresses. `begin` sets the number of threads, `end` that of the device where
    the last calls had another one.
    """

    calls: tuple[Call, ...]
    nodes: tuple[Node, ...]
    in_python: bool
    is_plain: bool
    outputs: tuple[Array, ...]
    new: Mapping[int, Output]
    borrowed: tuple[tuple[int, tuple[Memory, ...]], ...]
    lent: tuple[tuple[int, str], ...]
    given: dict[str, Array]
    copied: tuple[tuple[int, Array], ...]
    large: list[str]
    with_nan: list[str]
    kept: Sequence[object]
    begin: Callable[[], object]
    end: Callable[[], object] | None


@dataclass(frozen=True, slots=True)
class _ByNode:
    """One call for each node, and what else traced runs use."""

    calls: tuple[Call, ...]
    nodes: tuple[Node, ...]
    marks: tuple[Mark, ...]
    recorder: PartRecorder
    stamp: Callable[[int], None]

    @staticmethod
    def of(bound: _Bound, recorder: PartRecorder) -> "_ByNode":
        found = by_node(bound.calls, bound.nodes)
        calls = tuple(group[0] if len(group) == 1 else in_turn(group) for group in found.groups)
        return _ByNode(calls, found.nodes, found.marks, recorder, recorder.stamps.append)


def _calls(launches: Sequence[tuple[Launch | Call, int]], threads: int) -> tuple[tuple[Call, ...], int]:
    """The calls of a run that begins with so many threads, and the number with which it ends.

    It changes only where a primitive needs another one.
    """
    calls = []
    for launch, wanted in launches:
        call = launch.call if isinstance(launch, Launch) else launch
        if isinstance(launch, Launch) and wanted != threads:
            call, threads = _with_threads(wanted, call), wanted
        calls.append(call)
    return tuple(calls), threads


def _with_threads(threads: int, call: Call) -> Call:
    change = library().changes_threads(threads)

    def run() -> int | None:
        change()
        return call()

    return run
