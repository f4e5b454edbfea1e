"""Requests whose runs are recorded by a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dovetail.devices.contract import ExecutableRequest
from dovetail.devices.device_array import DeviceArray, kept_on_host
from dovetail.graph.graph import Node
from dovetail.planning.deferred import owned
from dovetail.planning.plan import Plan, Step
from dovetail.planning.report import NodePlacement
from dovetail.runtime.infer_request import Background, CompiledPlans, InferRequest, Results
from dovetail.runtime.plan_request import PlanRequest
from dovetail.tracing import PartRecorder, SpanRecorder, Trace, clock

__all__ = ["TracedRequest"]


@dataclass(frozen=True)
class _PlanRecorder:
    """Records the runs of a plan: its parts, and its nodes on the host. `path` has the sub-graphs that the plan is in."""

    trace: Trace
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
        recorder = PartRecorder(self.trace, step.device, self._placed, self.path)
        return partial(request.run_traced, recorder=recorder)

    def on_host(self, node: Node, run: Callable[[], list[Any]]) -> list[Any]:
        """Run a node on the host."""
        placed = self._placed.get(node.name)
        with self.trace.slice(node.name, "host", placed, self.path):
            return run()

    def followed_by(self, plan: Plan) -> "_PlanRecorder":
        """For the plan of what this one leaves to be planned."""
        return replace(self, plan=plan)

    def inside(self, holder: str) -> Callable[[Plan], "_PlanRecorder"]:
        """For the plans of a sub-graph; `holder` is its node and attribute."""
        return lambda plan: _PlanRecorder(self.trace, plan, f"{self.path}/{holder}" if self.path else holder)


def _readers(node: NodePlacement, readers: Mapping[str, Mapping[str, None]], nodes: Sequence[NodePlacement]) -> tuple[str, ...]:
    found = dict.fromkeys(name for value in node.outputs for name in readers.get(value.name, ()))
    read = {value.name for value in node.inputs}
    written = (name for other in nodes if read & {value.name for value in other.outputs} for name in other.origins)
    return tuple(found or dict.fromkeys(written))


class TracedRequest(InferRequest):
    """A request that records its runs, except those that fail. Nodes give the same results as those of other requests."""

    def __init__(self, compiled: CompiledPlans, trace: Trace) -> None:
        super().__init__(compiled)
        source = compiled.model.source
        self._trace = trace
        self._infers = SpanRecorder(trace, (f"infer {source}", "request"), ("check the inputs", "transfer"))
        self._runs = SpanRecorder(trace, (f"run {source}", "run"), ("copy the outputs", "transfer"))
        self._forwards = SpanRecorder(trace, (f"run {source}", "run"))
        self._checked = self._began = self._ran = 0
        # Sub-graphs and what follows data are planned in the middle of a run.
        self._recording = trace.recording()

    def infer(self, inputs: Any = None, *, share_outputs: bool = False, on_device: bool = False) -> Results:
        """As `InferRequest.infer`, recorded."""
        start = clock()
        results = super().infer(inputs, share_outputs=share_outputs, on_device=on_device)
        self._infers.add(start, clock(), start, self._checked)
        return results

    def forward(self, values: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """As `InferRequest.forward`, recorded."""
        self._began = clock()
        with self._recording:
            found = super().forward(values, on_device)
        self._forwards.add(self._began, self._ran)
        return found

    def _start(self, inputs: Any, userdata: Any, run: Background) -> None:
        with self._trace.slice("check and copy the inputs", "transfer"):
            super()._start(inputs, userdata, run)

    def _run(self, arrays: Sequence[Any], share_outputs: bool, on_device: bool = False) -> Results:
        self._checked = self._began = clock()
        with self._recording:
            results = super()._run(arrays, share_outputs, on_device)
        ended = clock()
        self._runs.add(self._began, ended, self._ran, ended)
        return results

    def _advance(self, arrays: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        # Transfers are part of the record.
        outputs = super()._advance([np.asarray(a) if isinstance(a, DeviceArray) else a for a in arrays])
        self._ran = clock()
        return kept_on_host(lambda _: [owned(a) for a in outputs], ()) if on_device else outputs

    def _rebind(self, shapes: tuple[tuple[int, ...] | None, ...]) -> None:
        with self._trace.slice("bind buffers and launches", "bind"):
            super()._rebind(shapes)
        self._began = clock()

    def _bind(self, plan: Plan) -> PlanRequest:
        return PlanRequest(plan, _PlanRecorder(self._trace, plan))
