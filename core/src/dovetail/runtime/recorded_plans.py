"""Plans of a compiled model: stored or new, within the time limit, recorded in the trace; warnings of nodes that fall back."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dovetail import _log
from dovetail.devices.virtual import Targets
from dovetail.devices.work_budget import limited
from dovetail.graph.model import Model, specialised
from dovetail.names import printable, visible
from dovetail.planning.plan import Plan, Shapes
from dovetail.planning.planner import Planner, Prepared, improving

if TYPE_CHECKING:
    from dovetail.planning.planner import Keep
    from dovetail.runtime.stored_plans import PlanStore, StoredPlan
    from dovetail.tracing import Trace

__all__ = ["Recorded", "make_plan", "restore_plan"]

P = TypeVar("P", Plan, Plan | None)


class Recorded:
    """Calls what makes plans of a model, within the time limit and recorded in the trace, and warns of nodes that fall back."""

    def __init__(self, model: Model, targets: Targets, limit: float | None, trace: "Trace | None") -> None:
        self._model, self._targets, self._limit, self._trace = model, targets, limit, trace
        self._logged: set[str] = set()

    def __call__(self, make: Callable[[], P]) -> P:
        with limited(self._limit), self._trace.recording() if self._trace else nullcontext():
            made = make()
        if made is None:
            return made
        _log_fallbacks(self._model, made, self._targets.devices, self._logged)
        return self._noted(made) if self._targets.passed_over else made

    def _noted(self, made: Plan) -> Plan:
        """The plan, whose report and better one name the devices that were passed over."""
        inner = made.better
        better = None if inner is None else type(inner)(lambda: self._noted(inner.make()), inner.after)
        return replace(made, make_report=lambda: replace(made.report, passed_over=self._targets.passed_over), better=better)


def make_plan(
    planner: Callable[[], Planner],
    recorded: Recorded,
    graph: Prepared,
    store: "PlanStore | None",
    shapes: Shapes,
    keep: "Keep | None" = None,
) -> Plan:
    """A plan of the graph for these shapes: the stored one, which is improved later; or a new one, which is stored then."""
    if keep is None and store is not None:
        if (found := store.get(shapes)) is not None:
            return improving(found, lambda: planner().plan_afresh(specialised(graph.graph, shapes), graph.reports))
        keep = store.keep(shapes)
    return recorded(lambda: planner().plan(specialised(graph.graph, shapes), graph.reports, keep))


def restore_plan(compiler: Planner, later: Callable[[], Planner], recorded: Recorded, one: "StoredPlan") -> Plan | None:
    """The plan that is stored, compiled without passes; what waits for data needs a planner with them, `later`."""
    return recorded(lambda: (compiler if one.deferred is None else later()).restored(one.planned, one.notes))


def _log_fallbacks(model: Model, plan: Plan, chosen: Sequence[str], logged: set[str]) -> None:
    """Warn of each node that the chosen devices refuse, unless a plan for other shapes has: `logged` has the lines so far."""
    others = any(step.device not in chosen for step in plan.steps)
    moved = [n for n in plan.report.nodes if n.device not in chosen and n.refusals] if others else []
    for node in moved:
        device, refusal = node.refusals[0]
        source, name, op = (printable(text) for text in (model.source, node.name, node.op))
        line = f"{source}: node {name} ({op}) runs on {node.device}; {device}: {visible(str(refusal))}"
        if line not in logged:
            logged.add(line)
            _log.warning("%s", line)
