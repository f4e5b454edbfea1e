"""The state of one inference for one plan, and for the plans that follow it."""

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.checked import check_results, explain_run
from dovetail.devices.contract import ExecutableRequest, StagedRun
from dovetail.devices.device_array import DeviceArray, kept_on_host
from dovetail.devices.work_budget import RUNNING
from dovetail.errors import DovetailError, OutOfMemory
from dovetail.graph.graph import Node
from dovetail.lru import LruCache
from dovetail.names import printable
from dovetail.planning.plan import HostStep, Plan, Signature, Step, signature
from dovetail.planning.plan_cache import PlanCache
from dovetail.protocol import Protocol
from dovetail.runtime.results import owned

if TYPE_CHECKING:
    from dovetail.planning.better import Better
    from dovetail.runtime.control_node import Staged
    from dovetail.runtime.host_steps import HostSteps
    from dovetail.runtime.staged_iterations import Counts, Layout, StagedIterations
    from dovetail.runtime.staged_plan import StagedPlan

__all__ = ["PlanRequest"]


_Call = tuple[Callable[..., Sequence[Any]], tuple[int, ...], tuple[int, ...]]
"""The run of a step, the slots that it reads, and those that it writes."""

_SERVED = 512
"""Types of values of a graph for which the request is kept that takes any shapes."""

_NOTHING: Any = object()
"""In place of the results of a run that has not returned."""


class _PlanRecorder(Protocol):
    """Records the runs of one plan."""

    def bound(self, request: ExecutableRequest, step: Step) -> Callable[..., Any]:
        """The call that runs one part, in place of `request.run`."""

    def on_host(self, node: Node) -> Callable[[Callable[[], list[Any]]], list[Any]]:
        """Runs a node on the host: calls what it is given."""

    def planning(self) -> AbstractContextManager[None]:
        """Record, in a `with` statement, the making of plans."""

    def of(self, plan: Plan, holder: str) -> "_PlanRecorder":
        """For a plan of a sub-graph, whose node and attribute are `holder`; "" for a plan in place of this, or for its rest."""


class PlanRequest:
    """The device requests of one plan, wired: everything that a run needs, looked up once. With a recorder, runs are recorded.

    `inner`: it is of a graph in the middle of a model.
    """

    def __init__(
        self, plan: Plan, recorder: _PlanRecorder | None = None, has_states: bool = False, *, inner: bool = False
    ) -> None:
        self._recorder, self._has_states, self._inner = recorder, has_states, inner
        self._wire(plan)

    def _wire(self, plan: Plan) -> None:
        recorder = self._recorder
        self._requests: tuple[ExecutableRequest, ...] = tuple(step.create_request() for step in plan.steps)
        self.plan, self._better = plan, plan.better
        self._layouts: dict[Counts, Layout | None] = {}
        self._staged: StagedPlan | None = None
        self._may_be_staged = recorder is None
        runs = [r.run if recorder is None else recorder.bound(r, s) for r, s in zip(self._requests, plan.steps, strict=True)]
        if len(runs) > 1 and any(r.kept_states for r in self._requests):
            runs = [_with_states_on_host(run, {*r.kept_states}) for run, r in zip(runs, self._requests, strict=True)]
        self._plain = tuple((run, s.reads, s.writes) for run, s in zip(runs, plan.steps, strict=True))
        self._calls = self._checking(self._plain)
        self._kept = frozenset(s.reads[i] for r, s in zip(self._requests, plan.steps, strict=True) for i in r.kept_states)
        self._empty = [None] * (plan.slots - plan.inputs)
        tail = () if plan.tail is None else plan.tail.steps
        rest = None if plan.tail is None else plan.tail.rest
        self._rest = None if rest is None else Runner(rest, recorder)
        self._bodies = [[self._runner(step, i) for i in range(len(step.bodies))] for step in tail]
        self._tail = self._host_steps(tail) if tail else None
        # With a single step that reads all inputs in order and gives all outputs in order there is nothing to wire.
        step = plan.steps[0] if len(plan.steps) == 1 and plan.tail is None else None
        outputs = tuple(o if isinstance(o, int) else None for o in plan.outputs)  # None for constants, which are arrays
        self._count = 0 if step is None else len(step.writes)
        self._direct = step is not None and step.reads == tuple(range(plan.inputs)) and step.writes == outputs
        # With a single step that writes all slots in order there are none to keep.
        self._alone = step is not None and step.writes == tuple(range(plan.inputs, plan.slots))
        self.fresh = step is not None and step.writes == outputs and self._requests[0].fresh

    @property
    def keeps_states(self) -> bool:
        """Whether devices keep states of the request in their memory."""
        return bool(self._kept)

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run with checked inputs. The arrays returned belong to the devices until the next run."""
        if self._better is not None:
            self._follow(self._better)
        if self._has_states and DeviceArray in map(type, values):  # another plan of the request may have kept them on a device
            values = [np.asarray(v) if type(v) is DeviceArray and i not in self._kept else v for i, v in enumerate(values)]
        if self._direct:
            results = _NOTHING
            try:
                results = self._calls[0][0](values)
                if len(results) != self._count:
                    self._check(0, results)
                return results
            except (Exception, SystemExit) as error:
                self._explain(0, error, results)
                raise
        found = self._advance(values)
        if self._rest is None:
            return found
        with np.errstate(all="ignore"):
            return self._rest.run(found)

    def run_kept(self, values: Sequence[Any]) -> Sequence[Any]:
        """As `ExecutableRequest.run_kept`. With steps on the host, or a recorder, results are in the host's memory."""
        if self._better is not None:
            self._follow(self._better)
        if self._tail is not None or self._recorder is not None:
            return kept_on_host(lambda given: [owned(v) for v in self.run(given)], values)
        calls: list[_Call] = [
            (r.run_kept, reads, writes) for r, (_, reads, writes) in zip(self._requests, self._calls, strict=True)
        ]
        found = self._advance(values, calls if self._calls is self._plain else self._checking(calls))
        return kept_on_host(lambda _: [owned(v) for v in found], ())

    def layout(self, values: Sequence[Any], counts: "Counts") -> "Layout | None":
        """The plan as a sub-graph whose iterations stay in memory, for such values; None where they do not."""
        if counts not in self._layouts:
            from dovetail.runtime.staged_iterations import Layout  # here, because few plans are those of loops

            staged = self.staged(values)
            self._layouts[counts] = None if staged is None else Layout.of(staged, values, counts)
        return self._layouts[counts]

    def staged(self, values: Sequence[Any]) -> "StagedPlan | None":
        """The plan with values in fixed places, for inputs of the types of these; None where it cannot run so."""
        if not self._may_be_staged:
            return None
        if self._staged is None:
            self._staged = self._as_staged(values)
            self._may_be_staged = self._staged is not None
        return self._staged

    def _as_staged(self, values: Sequence[Any]) -> "StagedPlan | None":
        runs = list[StagedRun]()
        for number, (step, request) in enumerate(zip(self.plan.steps, self._requests, strict=True)):
            one = request.staged()
            if one is None or any(array.dtype.kind == "O" for array in (*one.inputs, *one.outputs)):
                return None
            check_results(step.device, one.outputs, step.results)
            runs.append(replace(one, run=partial(self._run_staged, number, one.run)))
        from dovetail.runtime.staged_plan import staged_plan  # here, because few plans are those of loops

        return staged_plan(self.plan, runs, self._bodies, self._rest, values)

    def _run_staged(self, number: int, run: Callable[[], object]) -> None:
        try:
            run()
        except (Exception, SystemExit) as error:
            self._explain(number, error, _NOTHING)
            raise

    def _follow(self, better: "Better[Plan]") -> None:
        """Take the requests of the final plan once that is there."""
        plan = better.asked()
        if plan is None:
            return
        old, self._recorder = self._requests, self._recorder and self._recorder.of(plan, "")
        try:
            self._wire(plan)
        except OutOfMemory as error:  # for a moment there are the buffers of both
            better.stays(error)
            self._better = None
        else:
            for one in old:
                one.close()

    def _advance(self, values: Sequence[Any], calls: Sequence[_Call] = ()) -> Sequence[Any]:
        """Run the plan: its outputs, or the inputs of the rest. `calls` in place of those of `run`."""
        budget, number, results = RUNNING.budget, 0, _NOTHING
        try:
            if self._direct and not calls:
                if budget is not None and budget.deadline is not None:
                    budget.check(_first_node(self.plan.steps[0]))
                results = self._calls[0][0](values)
                if len(results) != self._count:
                    self._check(0, results)
                return results
            if self._alone and not calls and (budget is None or budget.deadline is None):
                run, reads, _ = self._calls[0]
                results = run([values[i] for i in reads])
                if len(results) != self._count:
                    self._check(0, results)
                slots: list[Any] = [*values, *results]
                return [slots[o] if type(o) is int else o for o in self.plan.outputs]
            slots = [*values, *self._empty]
            for number, (run, reads, writes) in enumerate(calls or self._calls):
                # Devices check within their part, and need not for a short one; a model may be cut into hundreds of these.
                if budget is not None and budget.deadline is not None and perf_counter() > budget.deadline:
                    budget.check(_first_node(self.plan.steps[number]))
                results = _NOTHING  # of this part
                results = run([slots[i] for i in reads])
                for slot, array in zip(writes, results, strict=True):
                    slots[slot] = array
        except (Exception, SystemExit) as error:
            self._explain(number, error, results)
            raise
        if self._tail is not None and self._inner:
            started = perf_counter()
            self._tail(slots)
            if (takes := self.plan.open_inputs) is not None:
                takes.room.took(perf_counter() - started)
        elif self._tail is not None:
            with np.errstate(all="ignore"):  # once for all nodes and iterations: it takes as long as a small node
                self._tail(slots)
        return [slots[o] if type(o) is int else o for o in self.plan.outputs]

    def _checking(self, calls: Sequence[_Call]) -> tuple[_Call, ...]:
        """The calls for a run whose results are checked; with the last one that is over."""
        steps = self.plan.steps

        def checked(number: int, run: Callable[..., Any], given: Sequence[Any]) -> Sequence[Any]:
            found = check_results(steps[number].device, run(given), steps[number].results)
            if number == len(steps) - 1:
                self._calls = self._plain
            return found

        return tuple((partial(checked, number, run), reads, writes) for number, (run, reads, writes) in enumerate(calls))

    def _check(self, number: int, results: Any) -> None:
        """Raise an error that names the device for results of a part that are of other types."""
        step = self.plan.steps[number]
        check_results(step.device, results, step.results)

    def _explain(self, number: int, error: BaseException, results: Any) -> None:
        """Raise an error that names the device for a mistake in its code: of later runs the results are looked at only now."""
        step = self.plan.steps[number]
        if results is not _NOTHING and not isinstance(error, DovetailError):
            self._check(number, results)
        explain_run(step.device, step.executable, step.results, error)

    def _host_steps(self, steps: Sequence[HostStep]) -> "HostSteps":
        from dovetail.runtime.host_steps import HostSteps  # here, because few plans have such steps

        recorded = None if self._recorder is None else self._recorder.on_host
        return HostSteps(steps, self._bodies, self.plan.inputs, recorded)

    def _runner(self, step: HostStep, index: int) -> "Runner":
        holder = f"{step.node.name}/{[name for name, _ in step.named_bodies][index]}"
        return Runner(step.bodies[index].plans, self._recorder, holder)

    def close(self) -> None:
        """Free the device requests, those of following plans too."""
        waiting = [self]
        while waiting:
            request = waiting.pop()
            waiting += [r for runner in (request._rest, *chain(*request._bodies)) if runner for r in runner.drop()]
            for one in request._requests:
                one.close()


class Runner:
    """Requests for the plans of a graph in the middle of a model, by signature; used by one thread at a time.

    `recorder` is that of the plan around them, and `holder` as `_PlanRecorder.of` takes it.
    """

    def __init__(self, plans: PlanCache[Signature, Plan], recorder: _PlanRecorder | None, holder: str = "") -> None:
        self._plans = plans
        self._recorder, self._holder = recorder, holder
        self._requests: LruCache[Signature, PlanRequest] = LruCache(plans.size, drop=PlanRequest.close)
        self._others: list[PlanRequest] = []  # for any shapes
        self._latest: tuple[list[Any], PlanRequest | None] = [], None  # and what its values were, which loops repeat
        self._served: dict[tuple[Any, ...], PlanRequest] = {}  # by what the values of those for any shapes were

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the graph, planned for these values. A loop and no recursion: graphs may be cut into many parts."""
        runner: Runner | None = self
        while runner is not None:
            values = _contiguous(values)
            request = runner._request(values, _kinds(values))
            values, runner = request._advance(values), request._rest
        return values

    def body(self, node: Node, captured: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
        """A call that runs the graph as a sub-graph of the node, with its arguments: its outputs, which outlive the next run."""
        captured = _contiguous(captured)
        kinds = _kinds(captured)  # once for all iterations
        latest: list[Any] | None = None
        request: PlanRequest | None = None

        def run(arguments: Sequence[Any]) -> list[Any]:
            nonlocal latest, request
            if (budget := RUNNING.budget) is not None and budget.deadline is not None:
                budget.check(node)
            values = [*_contiguous(arguments), *captured]
            found = _kinds(values[: len(arguments)])
            if request is None or found != latest:
                request, latest = self._request(values, [*found, *kinds]), found
            results = request._advance(values)
            if request._rest is not None:
                results = request._rest.run(results)
            elif request.fresh:
                return [*results]
            return [v.copy("K") if type(v) is np.ndarray else owned(v) for v in results]

        return run

    def iterations(
        self,
        node: Node,
        limit: int,
        captured: Sequence[Any],
        parts: tuple[Sequence[Any], Sequence[Any], Sequence[NDArray[Any]]],
        stacked: Sequence[bool],
        most: int | None,
    ) -> "StagedIterations | None":
        """See `RunGraph.iterations`; `parts` are the fixed, carried and scanned arguments."""
        from dovetail.runtime.staged_iterations import Counts, StagedIterations

        fixed, state, scanned = parts
        values = [*_contiguous([*fixed, *state, *[whole[0, ...] for whole in scanned], *captured])]
        if self._recorder is not None or not all(type(v) is np.ndarray and v.dtype.kind != "O" for v in values):
            return None
        counts = Counts(len(fixed), len(state), len(scanned), len(stacked))
        layout = self._request(values, _kinds(values)).layout(values, counts)
        if layout is None:
            return None
        values[len(fixed) + len(state) : len(fixed) + len(state) + len(scanned)] = scanned
        return StagedIterations(node, limit, layout, values, stacked, most)

    def staged_plan(self, values: Sequence[Any]) -> "StagedPlan | None":
        """The graph with values in fixed places, planned for such values; None where it cannot run so."""
        return self._request(values, _kinds(values)).staged(values)

    def staged(self, values: Sequence[Any]) -> "Staged | None":
        """The graph with inputs in these arrays, whose content changes: what to write before a run, the run, and its outputs."""
        plan = self.staged_plan(values)
        if plan is None:
            return None
        outputs = [values[one] if isinstance(one, int) else one for one in plan.outputs]
        return [(place, values[number]) for number, place, _ in plan.places], plan.run, outputs

    def drop(self) -> list[PlanRequest]:
        """Forget the requests, and return them."""
        others, self._others, self._latest, self._served = self._others, [], ([], None), {}
        return [*self._requests.clear(), *others]

    def _request(self, values: Sequence[Any], kinds: list[Any]) -> PlanRequest:
        """For values of these kinds, as `_kinds` gives them."""
        latest, request = self._latest
        if request is None or kinds != latest:
            key = tuple(kinds)
            request = self._served.get(key) or self._serving(values, kinds)
            if request.plan.open_inputs is not None:
                if len(self._served) >= _SERVED:
                    self._served.clear()
                self._served[key] = request
            self._latest = kinds, request
        return request

    def _serving(self, values: Sequence[Any], kinds: list[Any]) -> PlanRequest:
        latest, request = self._latest
        takes = None if request is None else request.plan.open_inputs
        return request if request and takes and takes.serve(latest, kinds) else self._found(signature(values))

    def _found(self, key: Signature) -> PlanRequest:
        request = self._requests.get(key)
        if request is None:
            outer = self._recorder
            with nullcontext() if outer is None else outer.planning():
                plan = self._plans.get(key)
                if plan.open_inputs and (made := [one for one in self._others if one.plan is plan]):
                    return made[0]
                request = PlanRequest(plan, outer and outer.of(plan, self._holder), inner=True)
            if plan.open_inputs:
                self._others.append(request)
            else:
                self._requests.put(key, request)
        return request


def _contiguous(values: Sequence[Any]) -> Sequence[Any]:
    """References may give views in any order, and plain numbers; devices take C-contiguous arrays."""
    for value in values:
        if type(value) is not np.ndarray or not value.flags.c_contiguous:
            break
    else:
        return values
    return [
        v
        if (type(v) is np.ndarray and v.flags.c_contiguous) or v is None or isinstance(v, list | dict)
        else np.asarray(v, order="C")
        for v in values
    ]


def _kinds(values: Sequence[Any]) -> list[Any]:
    return [(v.dtype, v.shape) if type(v) is np.ndarray else type(v) for v in values]


def _first_node(step: Step) -> str:
    """The first node of a part, as messages name it."""
    names = [f"node '{printable(one.name)}' ({printable(one.op)})" for one in step.executable.reports]
    return names[0] if names else f"a part on {step.device}"


def _with_states_on_host(run: Callable[..., Sequence[Any]], kept: Set[int]) -> Callable[..., Sequence[Any]]:
    """`run` for inputs of which some are states that another step keeps on its device; `kept` are those of its own."""
    return lambda given: run([np.asarray(v) if type(v) is DeviceArray and i not in kept else v for i, v in enumerate(given)])
