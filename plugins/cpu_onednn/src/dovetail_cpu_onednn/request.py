"""One inference at a time: an arena, and a flat tuple of executions bound to it."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import (
    ExecutableRequest,
    Node,
    OutOfMemory,
    StagedRun,
    WorkBudget,
    clock,
    current_budget,
    node_failure,
    quiet_context,
)
from dovetail.errors import InferError
from dovetail_cpu_onednn.binder import Binder, Output, move
from dovetail_cpu_onednn.binding import Launch, Memory
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import refused
from dovetail_cpu_onednn.python_kernel import Array, Call, in_turn

if TYPE_CHECKING:
    from dovetail.device import Mark, PartRecorder
    from dovetail_cpu_onednn.executable import OnednnExecutable
    from dovetail_cpu_onednn.placement import Placement

__all__ = ["CLOSED", "OnednnRequest"]

COPIED = 1 << 13
"""Bytes of an input up to which copying it, 0.3 us, takes less time than telling primitives its address, 1.4 us each."""

JOINED_NS = 100_000
"""Estimated nanoseconds of the launches in one call: a limit of time, or a cancelled run, waits for its end."""

_Bind = tuple[Launch | Call, "Placement"]
"""A launch with the placement of its node."""

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
        self._state = quiet_context()
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
        bound = [(launch, p) for p in executable.placements for launch in binder.launches(p)]
        if bound:
            library().plan_threads(executable.shared_by)
            last = replace(bound[-1][1], threads=executable.shared_by)
            bound += [(launch, last) for launch in binder.nan_checks(executable.nan_checks.final)]
        steps, ends_with = _steps(_in_groups(bound), executable.shared_by)
        storage = executable.memory.storage
        new = {i: binder.output(n) for i, n in enumerate(graph.outputs) if binder.is_new(n)}
        outputs = tuple(
            _NOTHING if i in new else _as_given(binder.array(name), states.get(storage[name]))
            for i, name in enumerate(graph.outputs)
        )
        # What only primitives read need not be copied: they get the caller's address at every run.
        large = [name for name in graph.inputs if name not in states and graph.types[name].nbytes > COPIED]
        borrowed = {name: binder.readers.get(name, []) for name in large if name not in binder.arrays}
        in_python = any(not isinstance(launch, Launch) for launch, _ in bound)
        return _Bound(
            calls=tuple([call for call, _ in steps]),
            ends=tuple(accumulate([count for _, count in steps])),
            launches=bound,
            threads=executable.shared_by,
            in_python=in_python,
            is_plain=not (in_python or borrowed or new),
            outputs=outputs,
            new=new,
            borrowed=tuple((i, tuple(borrowed[n])) for i, n in enumerate(graph.inputs) if n in borrowed),
            lent=tuple((i, n) for i, n in enumerate(graph.inputs) if n in binder.lent),
            given=binder.given,
            copied=tuple((i, binder.array(n)) for i, n in enumerate(graph.inputs) if n not in borrowed and n not in states),
            large=binder.large,
            with_nan=binder.with_nan,
            kept=[binder],
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
                if bound.large or bound.with_nan:  # of the last run
                    bound.forget()
                self._call_all(bound)
                if bound.end is not None:
                    bound.end()
                return self._run_strictly(inputs) if bound.with_nan else bound.outputs
            outputs = self._run(bound, inputs, self._call_all)
            return self._run_strictly(inputs) if bound.with_nan else outputs
        except MemoryError as error:
            raise refused(error) from error

    def staged(self) -> StagedRun | None:
        """Its arrays, if all of them are in the arena, and no run has to be repeated with the same inputs because of NaN."""
        bound, checks = self._bound, self._executable.nan_checks
        if self._states or bound is None or bound.borrowed or bound.lent or bound.new:
            return None
        if checks.before or checks.final or checks.refused:
            return None
        inputs, lasting = tuple([staging for _, staging in bound.copied]), self._executable.memory.lasting(self._executable.graph)
        return StagedRun(inputs, bound.outputs, partial(self._run_staged, bound), lasting)

    def _run_staged(self, bound: "_Bound") -> None:
        if self._bound is not bound:
            raise InferError(CLOSED)
        try:
            bound.begin()
            bound.forget()
            if bound.in_python:
                self._in_quiet(self._call_all, bound)
            else:
                self._call_all(bound)
            if bound.end is not None:
                bound.end()
        except MemoryError as error:
            raise refused(error) from error

    def _in_quiet(self, call: "Callable[[_Bound], None]", bound: "_Bound") -> None:
        """The calls, some of them in Python, without NumPy's warnings."""
        if self._state is not None:
            self._state.run(call, bound)
        else:
            with np.errstate(all="ignore"):
                call(bound)

    def _bound_to(self, inputs: Sequence[Array]) -> "_Bound | None":
        """The executions, bound to the arrays of states among these inputs; None after `close`."""
        if self._states and self._is_open:
            given = {name: inputs[index] for index, name in self._states}
            if len(given) != len(self._given) or any(a is not b for a, b in zip(given.values(), self._given, strict=True)):
                self._bound, self._by_node = self._bind(given), None
        return self._bound

    def run_traced(self, inputs: Sequence[Array], recorder: "PartRecorder") -> Sequence[Array]:
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
        from dovetail.device import Mark  # here, as below, because few runs are recorded

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
        bound.forget()
        for index, name in bound.lent:
            bound.given[name] = inputs[index]
        if new is not None:
            bound.given.update([(bound.new[index].block, array) for index, array in new.items()])
        try:
            if bound.in_python:
                self._in_quiet(call, bound)
            else:
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
        calls, budget, failed = iter(bound.calls), current_budget() or _UNLIMITED, 1
        try:
            for call in calls:
                if (status := call()) or budget.deadline is not None:
                    if status:
                        status, failed = status & 0xFFFFFFFF, max(1, status >> 32)  # see `joined`
                        library().check(status, "primitive_execute")
                    if budget.deadline is not None and perf_counter() > budget.deadline:
                        break
            else:
                return
        except (Exception, SystemExit) as error:
            raise _located(error, bound.node(bound.ends[-operator.length_hint(calls) - 1] - failed)) from error
        if remaining := operator.length_hint(calls):
            budget.check(bound.node(bound.ends[-remaining - 1] - 1))

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
        except (Exception, SystemExit) as error:
            raise _located(error, traced.nodes[-operator.length_hint(calls) - 1]) from error
        if remaining := operator.length_hint(calls):
            budget.check(traced.nodes[-remaining - 1])

    def close(self) -> None:
        """Free the arena and everything bound to it, at once or at the end of the run in progress."""
        self._is_open = False
        self._bound = self._strict = self._by_node = None
        self._given = ()
        self._arena = np.empty(0, np.uint8)


def _located(error: BaseException, node: Node) -> InferError:
    return refused(error, node) if isinstance(error, MemoryError | OutOfMemory) else node_failure("ONEDNN", node, error)


def _as_given(array: Array, state: Array | None) -> Array:
    """A state that was written where it is, as it was given, which tells that nothing is left to copy; else the array."""
    return state if state is not None and (state.shape, state.dtype) == (array.shape, array.dtype) else array


@dataclass(frozen=True, slots=True)
class _Bound:
    """Everything that a run uses. While a thread holds it, the memory that primitives read and write stays alive.

    `launches` are all, with the placements of their nodes; a run begins with `threads`. Each of the `calls` makes some of them,
    in `ends` is how many are made then. `is_plain`: calls of primitives are all, besides copying inputs. `borrowed` are inputs
    that only primitives read, which get the caller's address, `lent` those that kernels in Python find in `given` during a run;
    `copied` those that have a place of their own. `new` are outputs for which each run makes an array, in `given` too;
    `outputs` has an empty array in their place. `large` and `with_nan` are those of the binder, which is `kept` as the
    launches are, because calls hold bare addresses. `begin` sets the number of threads, `end` that of the device where the last
    calls had another one.
    """

    calls: tuple[Call, ...]
    ends: tuple[int, ...]
    launches: Sequence[_Bind]
    threads: int
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

    def node(self, launch: int) -> Node:
        """That of a launch."""
        return self.launches[launch][1].node.node

    def forget(self) -> None:
        """Forget what checks found in the last run."""
        self.large.clear()
        self.with_nan.clear()


@dataclass(frozen=True, slots=True)
class _ByNode:
    """One call for each node, and what else traced runs use."""

    calls: tuple[Call, ...]
    nodes: tuple[Node, ...]
    marks: "tuple[Mark, ...]"
    recorder: "PartRecorder"
    stamp: Callable[[int], None]

    @staticmethod
    def of(bound: _Bound, recorder: "PartRecorder") -> "_ByNode":
        from dovetail.device import by_node

        steps, _ = _steps([[one] for one in bound.launches], bound.threads)
        found = by_node([call for call, _ in steps], [p.node.node for _, p in bound.launches])
        calls = tuple(group[0] if len(group) == 1 else in_turn(group) for group in found.groups)
        return _ByNode(calls, found.nodes, found.marks, recorder, recorder.stamps.append)


def _in_groups(nodes: Iterable[_Bind]) -> list[list[_Bind]]:
    """The launches of nodes in order, in groups: primitives that follow each other on as many threads, with little work together,
    are one, all others one each.
    """
    groups: list[list[_Bind]] = []
    work = last = 0.0
    for launch, placement in nodes:
        may_join = isinstance(launch, Launch) and bool(launch.packed)
        work += placement.nanoseconds
        if may_join and last == placement.threads and work <= JOINED_NS:
            groups[-1].append((launch, placement))
        else:
            groups.append([(launch, placement)])
            work, last = placement.nanoseconds, placement.threads if may_join else 0
    return groups


def _steps(groups: Iterable[Sequence[_Bind]], threads: int) -> tuple[list[tuple[Call, int]], int]:
    """The calls of a run that begins with so many threads, each with its number of launches, and the threads with which it ends.

    These change only where a primitive needs another number.
    """
    steps: list[tuple[Call, int]] = []
    for group in groups:
        one = _joined(group) if len(group) > 1 else None
        for launch, placement in group[:1] if one is not None else group:
            call = one or (launch.call if isinstance(launch, Launch) else launch)
            if isinstance(launch, Launch) and placement.threads != threads:
                call, threads = _with_threads(placement.threads, call), placement.threads
            steps.append((call, 1 if one is None else len(group)))
    return steps, threads


def _joined(group: Sequence[_Bind]) -> Call | None:
    from dovetail_cpu_onednn.joined_launches import joined  # here, because models of long nodes need none

    return joined([launch for launch, _ in group if isinstance(launch, Launch)], all(p.is_short for _, p in group))


def _with_threads(threads: int, call: Call) -> Call:
    change = library().changes_threads(threads)

    def run() -> int | None:
        change()
        return call()

    return run
