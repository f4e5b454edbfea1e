"""Requests whose runs are recorded by a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.contract import ExecutableRequest
from dovetail.graph.graph import Node
from dovetail.planning.plan import Plan, Step
from dovetail.planning.report import NodePlacement
from dovetail.runtime.infer_request import CompiledPlans, InferRequest, Results
from dovetail.runtime.plan_request import PlanRequest
from dovetail.tracing import PartRecorder, Trace

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
    """A request that records its runs. Nodes give the same results as those of other requests."""

    def __init__(self, compiled: CompiledPlans, trace: Trace) -> None:
        super().__init__(compiled)
        self._trace = trace

    def infer(self, inputs: Any = None, *, share_outputs: bool = False) -> Results:
        """As `InferRequest.infer`, recorded."""
        with self._trace.slice(f"infer {self._compiled.model.source}", "request"):
            return super().infer(inputs, share_outputs=share_outputs)

    def _read(self, inputs: Any) -> list[Any]:
        with self._trace.slice("check the inputs", "transfer"):
            return super()._read(inputs)

    def _run(self, arrays: Sequence[NDArray[Any]], share_outputs: bool) -> Results:
        assert self._budget is not None
        arrays = self._with_states(arrays)
        shapes = tuple(a.shape if isinstance(a, np.ndarray) else None for a in arrays)
        # Sub-graphs and what follows data are planned in the middle of a run.
        with self._trace.recording(), self._budget:
            if shapes != self._shapes or self._bound is None:
                with self._trace.slice("bind buffers and launches", "bind"):
                    self._rebind(shapes)
            assert self._bound is not None
            with self._trace.slice(f"run {self._compiled.model.source}", "run"):
                outputs = self._bound.run(arrays)
                with self._trace.slice("copy the outputs", "transfer"):
                    self._results = self._finished(outputs, share_outputs)
        return self._results

    def forward(self, values: Sequence[Any]) -> Sequence[Any]:
        """As `InferRequest.forward`, recorded."""
        with self._trace.recording(), self._trace.slice(f"run {self._compiled.model.source}", "run"):
            return super().forward(values)

    def _bind(self, plan: Plan) -> PlanRequest:
        return PlanRequest(plan, _PlanRecorder(self._trace, plan))
