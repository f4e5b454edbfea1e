"""Requests whose runs are recorded by a trace."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.devices.contract import ExecutableRequest
from dovetail.devices.device_array import kept_on_host
from dovetail.graph.graph import Node
from dovetail.planning.deferred import owned
from dovetail.planning.plan import Plan, Step
from dovetail.planning.report import NodePlacement
from dovetail.runtime.infer_request import Background, CompiledPlans, InferRequest, Results
from dovetail.runtime.plan_request import PlanRequest
from dovetail.tracing import PartRecorder, RunLog, Slice, Spans, Trace, clock

__all__ = ["TracedRequest"]


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
        recorder, run = PartRecorder(self.log, step.device, self._placed, self.path), request.run_traced
        return lambda values: run(values, recorder)

    def on_host(self, node: Node) -> Callable[[Callable[[], list[Any]]], list[Any]]:
        """Runs a node on the host."""
        spans = Spans(partial(Slice, node.name, "host", placed=self._placed.get(node.name), path=self.path))
        log, stamp = self.log, self.log.entries.append

        def run(work: Callable[[], list[Any]]) -> list[Any]:
            # At once: what sub-graphs do is recorded between the two, and takes its stamps.
            stamp(clock())
            found = work()
            log.add(spans, clock())
            return found

        return run

    def planning(self) -> AbstractContextManager[None]:
        """Record, in a `with` statement, the making of plans."""
        return self.log.trace.recording()

    def of(self, plan: Plan, holder: str) -> "_PlanRecorder":
        """For a plan of a sub-graph, whose node and attribute are `holder`, or "" for what this plan leaves to be planned."""
        return replace(self, plan=plan, path="/".join(filter(None, (self.path, holder))))


def _readers(node: NodePlacement, readers: Mapping[str, Mapping[str, None]], nodes: Sequence[NodePlacement]) -> tuple[str, ...]:
    found = dict.fromkeys(name for value in node.outputs for name in readers.get(value.name, ()))
    read = {value.name for value in node.inputs}
    written = (name for other in nodes if read & {value.name for value in other.outputs} for name in other.origins)
    return tuple(found or dict.fromkeys(written))


class TracedRequest(InferRequest):
    """A request that records its runs, except those that fail. Nodes give the same results as those of other requests."""

    # Methods of the base are called by its name: `super()` takes as long as reading the time twice.

    def __init__(self, compiled: CompiledPlans, trace: Trace) -> None:
        super().__init__(compiled)
        source = compiled.model.source
        self._trace = trace
        self._log = RunLog(trace)
        self._ran_only = run = Spans(partial(Slice, f"run {source}", "run"))
        self._run_alone = Spans(*run.made, partial(Slice, "copy the outputs", "transfer"))
        asked = partial(Slice, f"infer {source}", "request"), partial(Slice, "check the inputs", "transfer")
        self._whole = Spans(*asked, *self._run_alone.made)
        # `_asked` is 0 in runs in the background.
        self._asked = self._checked = self._began = self._ran = self._ended = 0

    def infer(self, inputs: Any = None, *, share_outputs: bool = False, on_device: bool = False) -> Results:
        """As `InferRequest.infer`, recorded."""
        self._asked = asked = clock()
        results = InferRequest.infer(self, inputs, share_outputs=share_outputs, on_device=on_device)
        ran, ended = self._ran, self._ended
        self._log.add(self._whole, asked, clock(), asked, self._checked, self._began, ended, ran, ended)
        self._log.end()
        return results

    def forward(self, values: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """As `InferRequest.forward`, recorded."""
        self._began = clock()
        try:
            found = InferRequest.forward(self, values, on_device)
        except BaseException:
            self._log.entries.append(None)
            raise
        self._log.add(self._ran_only, self._began, self._ran)
        self._log.end()
        return found

    def _start(self, inputs: Any, userdata: Any, run: Background) -> None:
        self._asked = 0
        with self._trace.slice("check and copy the inputs", "transfer"):
            super()._start(inputs, userdata, run)

    def _run(self, arrays: Sequence[Any], share_outputs: bool, on_device: bool = False) -> Results:
        self._checked = self._began = clock()
        try:
            results = InferRequest._run(self, arrays, share_outputs, on_device)
        except BaseException:
            self._log.entries.append(None)
            raise
        self._ended = ended = clock()
        if not self._asked:
            self._log.add(self._run_alone, self._began, ended, self._ran, ended)
            self._log.end()
        return results

    def _advance(self, arrays: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        # Transfers are part of the record, so that results stay in the host's memory.
        if isinstance(self._bound, PlanRequest):
            outputs = InferRequest._advance(self, arrays)
        else:  # a virtual device may make requests of its parts in any run
            with self._trace.recording():
                outputs = InferRequest._advance(self, arrays)
        self._ran = clock()
        return kept_on_host(lambda _: [owned(a) for a in outputs], ()) if on_device else outputs

    def _rebind(self, shapes: tuple[tuple[int, ...] | None, ...]) -> None:
        with self._trace.recording(), self._trace.slice("bind buffers and launches", "bind"):
            super()._rebind(shapes)
        self._began = clock()

    def _bind(self, plan: Plan) -> PlanRequest:
        return PlanRequest(plan, _PlanRecorder(self._log, plan))
