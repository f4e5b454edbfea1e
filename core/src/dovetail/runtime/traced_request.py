"""Requests whose runs are recorded by a trace."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.devices.contract import ExecutableRequest
from dovetail.devices.device_array import kept_on_host
from dovetail.devices.work_budget import WorkBudget
from dovetail.graph.graph import Node
from dovetail.locks import cached_property
from dovetail.phases import clock
from dovetail.planning.plan import Plan, Step
from dovetail.planning.report import NodePlacement
from dovetail.runtime.infer_request import Background, CompiledPlans, InferRequest
from dovetail.runtime.plan_request import PlanRequest
from dovetail.runtime.results import Results, owned
from dovetail.tracing import PartRecorder, RunLog, Slice, Spans, Trace

__all__ = ["TracedRequest"]

_FIRST, _ENTRY = 100, 500
"""Runs of a request that are all recorded in detail, and the nanoseconds that each entry of the log is taken to cost: 100 to 150
for a time, with what cold caches add, and some 2000 for an event of OpenCL."""

_FREE, _SHARE, _MOST = 0.015, 0.005, 31
"""The part of a run's time that details may take; that on average where they take more; the most runs without for one with."""


@dataclass(frozen=True)
class _PlanRecorder:
    """Records the runs of a plan: its parts, and its nodes on the host. `path` has the sub-graphs that the plan is in."""

    log: RunLog
    plan: Plan
    path: str = ""

    @cached_property
    def _placed(self) -> Mapping[str, NodePlacement]:
        """The reports by name. A node that stands for none of the model, a reorder, has the origins of those that read it."""
        nodes = self.plan.report.nodes
        readers: dict[str, dict[str, None]] = {}
        for node in nodes:
            for value in node.inputs:
                readers.setdefault(value.name, {}).update(dict.fromkeys(node.origins))
        return {n.name: n if n.origins else replace(n, origins=_readers(n, readers, nodes)) for n in nodes}

    def bound(self, request: ExecutableRequest, step: Step) -> Callable[..., Any]:
        """The call that runs one part."""
        log, run, run_traced = self.log, request.run, request.run_traced
        recorder = PartRecorder(log, step.device, self._placed, self.path)
        return lambda values: run_traced(values, recorder) if log.in_detail else run(values)

    def on_host(self, node: Node) -> Callable[[Callable[[], list[Any]]], list[Any]]:
        """Runs a node on the host."""
        spans = Spans(partial(Slice, node.name, "host", placed=self._placed.get(node.name), path=self.path))
        log, stamp = self.log, self.log.entries.append

        def run(work: Callable[[], list[Any]]) -> list[Any]:
            if not (log.in_detail and log.trace.has_room()):
                return work()
            # At once: what sub-graphs do is recorded between the two, and takes its stamps.
            stamp(clock())
            found = work()
            log.entries += (clock(), spans)
            return found

        return run

    def planning(self) -> AbstractContextManager[None]:
        """Record, in a `with` statement, the making of plans."""
        return self.log.trace.recording()

    def of(self, plan: Plan, holder: str) -> "_PlanRecorder":
        """For a plan of a sub-graph, whose node and attribute are `holder`; "" for a plan in place of this, or for its rest."""
        return replace(self, plan=plan, path="/".join(filter(None, (self.path, holder))))


def _readers(node: NodePlacement, readers: Mapping[str, Mapping[str, None]], nodes: Sequence[NodePlacement]) -> tuple[str, ...]:
    found = dict.fromkeys(name for value in node.outputs for name in readers.get(value.name, ()))
    read = {value.name for value in node.inputs}
    written = (name for other in nodes if read & {value.name for value in other.outputs} for name in other.origins)
    return tuple(found or dict.fromkeys(written))


class TracedRequest(InferRequest):
    """A request that records its runs, except those that fail. Nodes give the same results as those of other requests.

    After the first runs, those whose details take a large part of the time have them once in a while.
    `budget` is that of every run; None for one of its own for each.
    """

    # Methods of the base are called by its name: `super()` takes as long as reading the time twice.

    def __init__(self, compiled: CompiledPlans, trace: Trace, budget: WorkBudget | None = None) -> None:
        super().__init__(compiled)
        self._given = budget
        source = compiled.model.source
        self._trace = trace
        self._log = RunLog(trace)
        self._ran_only = run = Spans(partial(Slice, f"run {source}", "run"))
        self._run_alone = Spans(*run.made, partial(Slice, "copy the outputs", "transfer"))
        asked = partial(Slice, f"infer {source}", "request"), partial(Slice, "check the inputs", "transfer")
        self._whole = Spans(*asked, *self._run_alone.made)
        self._as_one = Spans(partial(asked[0], details={"nodes": "those of other runs of this request"}))
        # `_without` runs without details follow each one with, `_left` of them still. `_fastest` is in nanoseconds.
        self._runs, self._left, self._without, self._fastest = -inf if trace.complete else 0, 0, 0, inf
        # `_asked` is 0 in runs in the background.
        self._asked = self._checked = self._began = self._ran = self._ended = 0

    def infer(self, inputs: Any = None, *, share_outputs: bool = False, on_device: bool = False) -> Results:
        """As `InferRequest.infer`, recorded."""
        log, asked = self._log, clock()
        self._asked = asked
        results = InferRequest.infer(self, inputs, share_outputs=share_outputs, on_device=on_device)
        done = clock()
        if log.in_detail:
            ran, ended = self._ran, self._ended
            log.end(self._whole, asked, done, asked, self._checked, self._began, ended, ran, ended)
        else:
            log.end(self._as_one, asked, done)
        self._left = left = self._left - 1
        if left < 1:
            self._choose(done - asked)
        return results

    def _choose(self, took: int) -> None:
        """After a run with details, or the last one without: choose what follows."""
        log = self._log
        if log.in_detail:
            self._runs, self._fastest = self._runs + 1, min(self._fastest, took)
            if self._runs == _FIRST:
                cost = _ENTRY * len(log.entries) / _FIRST / self._fastest
                self._without = min(_MOST, int(cost / _SHARE)) if cost > _FREE else 0
            self._left = self._without
        log.in_detail = self._left < 1

    def forward(self, values: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """As `InferRequest.forward`, recorded."""
        self._log.in_detail, self._began = True, clock()
        try:
            found = InferRequest.forward(self, values, on_device)
        except BaseException:
            self._log.entries.append(None)
            raise
        self._log.end(self._ran_only, self._began, self._ran)
        return found

    def _start(self, inputs: Any, userdata: Any, run: Background) -> None:
        self._asked, self._log.in_detail = 0, True
        with self._trace.slice("check and copy the inputs", "transfer"):
            super()._start(inputs, userdata, run)

    def _run(self, arrays: Sequence[Any], share_outputs: bool, on_device: bool = False, shapes: Any = None) -> Results:
        self._budget = self._given or self._budget
        if not self._log.in_detail:
            return InferRequest._run(self, arrays, share_outputs, on_device)
        self._checked = self._began = clock()
        try:
            results = InferRequest._run(self, arrays, share_outputs, on_device)
        except BaseException:
            self._log.entries.append(None)
            raise
        self._ended = ended = clock()
        if not self._asked:
            self._log.end(self._run_alone, self._began, ended, self._ran, ended)
        return results

    def _advance(self, arrays: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        # Transfers are part of the record, so that results stay in the host's memory.
        if isinstance(self._bound, PlanRequest):
            outputs = InferRequest._advance(self, arrays)
        else:  # a virtual device may make requests of its parts in any run
            with self._trace.recording():
                outputs = InferRequest._advance(self, arrays)
        self._ran = clock() if self._log.in_detail else 0
        return kept_on_host(lambda _: [owned(a) for a in outputs], ()) if on_device else outputs

    def _rebind(self, shapes: tuple[tuple[int, ...] | None, ...]) -> None:
        with self._trace.recording(), self._trace.slice("bind buffers and launches", "bind"):
            super()._rebind(shapes)
        self._began = clock()

    def _bind(self, plan: Plan) -> PlanRequest:
        return PlanRequest(plan, _PlanRecorder(self._log, plan), self._has_states)
