"""From a model and input shapes to a plan: the passes in their order, then one executable for each part."""

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.devices.contract import Device
from dovetail.devices.interruptible import Speed
from dovetail.devices.refusals import Reason, Refusal
from dovetail.devices.virtual import Placement
from dovetail.errors import CompileError, OperatorError, OutOfMemory, UnsupportedNode
from dovetail.graph.graph import AbstractOperator, Graph
from dovetail.graph.reloadable import let_go, reloadable
from dovetail.graph.rewriting import drop_dead_nodes, with_constants
from dovetail.graph.schedule import schedule
from dovetail.graph.types import TensorType
from dovetail.internal.opaque import PinnedOperator
from dovetail.locks import cached_property
from dovetail.passes.constant_folding import FOLD_BUDGET, Typed, type_and_fold
from dovetail.passes.defer import Continuation
from dovetail.passes.graph_pass import (
    PER_DEVICE,
    STAGES,
    Definitions,
    GraphPass,
    Notes,
    PassContext,
    PassReport,
    Planned,
    run_passes,
)
from dovetail.phases import phase
from dovetail.planning.options import REFERENCE_DEVICE, CompileOptions
from dovetail.planning.partition import Part, compile_parts, made_constants, partition, wire
from dovetail.planning.place import place, require_homes
from dovetail.planning.plan import Body, HostStep, Plan, Shapes, Signature, Source, Tail, Target, declared_signature, typed_inputs
from dovetail.planning.plan_cache import GROWING, SURE, PlanCache
from dovetail.plugins.rules import PREFERRED

if TYPE_CHECKING:
    from dovetail.planning.any_shapes import AnyShapes
    from dovetail.planning.report import PlanReport

__all__ = ["Keep", "Planner", "Prepared", "improving"]

_FEW_BODIES = 4
"""Plans of a loop's body from which on further shapes share one: where they grow, each is met once in a run."""

_SMALL = 64
"""Elements up to which constants are compared by content."""

Keep = Callable[[Planned, Notes], object]
"""Called with what was compiled, and the entries of its report."""

_WHOLE = tuple(stage for stage in STAGES if stage not in PER_DEVICE)
"""The stages that see the whole model."""


@dataclass(frozen=True)
class Planner:
    """Shared by all plans of one model: definitions of operators, devices in order of preference, options, passes.

    `provider_of` names the distribution that defines an operator class. `placement` chooses among the targets that accept a
    node; None takes the first. `passed_over` are targets that were not asked, with the reason. `memory` is that of the passes;
    `speeds` are those of runs, by device; `later` has the plans of graphs that are planned when data is there, which plans of
    the model for other shapes share. `outer` plans what follows the steps of this one's plans, and their sub-graphs.
    """

    definitions: Definitions
    targets: tuple[Target, ...]
    options: CompileOptions
    provider_of: Callable[[type[AbstractOperator]], str]
    passes: tuple[GraphPass, ...]
    budget: int = FOLD_BUDGET
    placement: Placement | None = None
    passed_over: tuple[tuple[str, Refusal], ...] = ()
    memory: dict[str, Any] = field(default_factory=dict)
    speeds: dict[str, Speed] = field(default_factory=lambda: defaultdict(Speed))
    later: "WeakValueDictionary[Hashable, PlanCache[Signature, Plan]]" = field(default_factory=WeakValueDictionary)
    outer: "Planner | None" = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of the targets."""
        return tuple(target.device for target in self.targets)

    def context(self, notes: Notes | None = None, device: Device | None = None) -> PassContext:
        """The context for passes; `device` for those that see one device's part."""
        limit = self.options.MEMORY_LIMIT
        return PassContext(self.definitions, self.devices, limit, self.budget, device, notes or Notes(), self.memory)

    def run(self, graph: Graph, stages: Sequence[str], context: PassContext, *, prepared: bool = False) -> Graph:
        """The graph after the passes of some stages; with `prepared` without those that `prepare` has run."""
        chosen = [one for one in self.passes if one.stage in stages and not (prepared and not one.needs_shapes)]
        return run_passes(graph, chosen, context)

    def prepare(self, graph: Graph, notes: Notes | None = None) -> Graph:
        """The graph after the passes that need no shapes, which run once for a model. Input shapes may be open."""
        early = [one for one in self.passes if not one.needs_shapes]
        return run_passes(graph, early, self.context(notes))

    def analyze(self, graph: Graph, notes: Notes | None = None) -> tuple[Graph, Continuation | None]:
        """The prepared graph typed and folded, and what can be planned only when data is there.

        All inputs must have static types, or be sequences or optionals. Raises `FormatError` for a data file that was changed.
        """
        self._check_files(graph.constants)
        context = self.context(notes)
        known = self.run(graph, ("bind", "type"), context, prepared=True)
        return known, context.notes.deferred

    def _check_files(self, constants: Mapping[str, NDArray[Any]]) -> None:
        """As `check_reloadable`. The owners of a model's constants are looked up once: plans for other sizes have the same."""
        known, files = self.memory.get("files", (None, ()))
        if known is not constants:
            files = reloadable(constants.values())
            self.memory["files"] = constants, files
        for one in files:
            one.check()

    def optimise(self, graph: Graph, notes: Notes) -> Graph:
        """The result of `analyze` as the graph that is placed on devices."""
        optimised = self.run(graph, _WHOLE[_WHOLE.index("type") + 1 :], self.context(notes), prepared=True)
        notes.rules.update((node.name, PREFERRED) for node in optimised.nodes if isinstance(node.op, PinnedOperator))
        return optimised

    def plan(self, graph: Graph, early: Mapping[str, PassReport] | None = None, keep: Keep | None = None) -> Plan:
        """Compile a prepared graph whose inputs have static types. A plan that a device made provisionally has a better one.

        The nodes that can be planned only with data become the plan's tail. `early` has the reports of `prepare`. `keep` is
        called with what is compiled, for `restored`. Raises
        `OperatorError` or a subclass for a bad graph, `UnsupportedNode` for a node that no target accepts, `CompileError` for a
        failure on a device, `FormatError` for a data file that was changed.
        """
        return improving(self._planned(graph, early, keep=keep), partial(self.plan_afresh, graph, early))

    def plan_afresh(self, graph: Graph, early: Mapping[str, PassReport] | None) -> Plan:
        """As `plan`, by devices that take nothing of what they compiled for other sizes."""
        return replace(self.afresh(), later=WeakValueDictionary())._planned(graph, early, afresh=True)

    def afresh(self, *, only: Callable[[Device], bool] = lambda _: True) -> "Planner":
        """With devices that take nothing of what they compiled for other sizes; `only` chooses these."""
        targets = [replace(one, device=one.device.afresh()) if only(one.device) else one for one in self.targets]
        return replace(self, targets=tuple(targets))

    def restored(self, planned: Planned, notes: Notes) -> Plan | None:
        """The plan of what `keep` was given, without passes; None where a device refuses it now."""
        try:
            made = self._compiled(planned, planned.whole, notes, time.perf_counter())
        except CompileError:
            return None
        return self._continued(made, planned.whole, notes.deferred)

    def _planned(
        self,
        graph: Graph,
        early: Mapping[str, PassReport] | None,
        *,
        afresh: bool = False,
        varying: frozenset[str] = frozenset(),
        keep: Keep | None = None,
    ) -> Plan:
        started = time.perf_counter()
        notes = Notes(passes=dict(early or {}), afresh=afresh, varying=varying)
        analyzed, continuation = self.analyze(graph, notes)
        # A plan with more behind it, and one for any shapes, has no better one.
        compiler = self if continuation is None and not varying else self.afresh(only=lambda device: device.compiles_again)
        if notes.planned is not None:
            try:
                plan = compiler._compiled(notes.planned, graph, notes, started)
            except CompileError:  # a device refuses what it took in other sizes
                notes.when_refused()
                return self._planned(graph, early, keep=keep)
            if keep is not None:
                keep(notes.planned, notes)
            return self._continued(plan, notes.planned.whole, continuation)
        if continuation is not None:
            _require_host(continuation, self.targets)
        whole = self.optimise(analyzed, notes)
        let_go(*graph.constants.values(), still_read=(whole if continuation is None else graph).constants.values())
        with phase("place nodes on devices", "plan"):
            placed = place(whole, self.targets, self.placement)
        require_homes(whole, placed)
        by_name = {target.name: target for target in self.targets}
        if self.passed_over:
            placed = {name: (home, (*self.passed_over, *refusals)) for name, (home, refusals) in placed.items()}
        homes = {name: home for name, (home, _) in placed.items()}
        parts = [self._on_device(part, by_name[part.device].device, notes) for part in partition(whole, homes)]
        planned = Planned(whole, parts, placed, analyzed)
        plan = compiler._compiled(planned, graph, notes, started)
        if keep is not None:
            keep(planned, notes)
        by_sizes = {one.name for one in self.passes if one.needs_shapes and not one.any_sizes}
        if self.placement is None and not any(
            one.origin or one.changed for name, one in notes.passes.items() if name in by_sizes
        ):
            notes.when_planned(planned)
        notes.bodies.clear()  # the report keeps the notes
        return self._continued(plan, whole, continuation, varying)

    def _compiled(self, planned: Planned, graph: Graph, notes: Notes, started: float) -> Plan:
        by_name, parts = {target.name: target for target in self.targets}, planned.parts
        passed = time.perf_counter()
        executables = compile_parts(parts, by_name, self.options.MEMORY_LIMIT)
        seconds = {"passes": passed - started, "compile": time.perf_counter() - passed}

        def report() -> "PlanReport":
            from dovetail.planning.reporting import report_of  # here, as below, because few reports are asked for

            return report_of(parts, executables, by_name, planned.placed, notes, self.provider_of, seconds)

        plan = wire(planned.whole, parts, executables, report, self.speeds)
        # What the user prefers is not replaced by references.
        brief = plan.brief and PREFERRED not in notes.rules.values()
        nodes = sum(len(part.graph.nodes) for part in parts)
        plan = replace(plan, brief=brief, nodes=nodes, made=made_constants(parts, graph.constants))
        hurried = [by_name[step.device].device for step in plan.steps if step.executable.provisional]
        if not hurried or not all(device.compiles_again for device in hurried):
            return plan
        return improving(plan, lambda: self.afresh()._compiled(planned, graph, notes, time.perf_counter()))

    def _on_device(self, part: Part, device: Device, notes: Notes) -> Part:
        stages = PER_DEVICE if self.options.FUSION else [stage for stage in PER_DEVICE if stage != "fuse"]
        return replace(part, graph=self.run(part.graph, stages, self.context(notes, device)))

    def _later(
        self,
        graph: Graph,
        *,
        prepared: bool = True,
        few: int | None = None,
        varying: frozenset[str] | None = None,
        is_body: bool = False,
    ) -> PlanCache[Signature, Plan]:
        """The plans of a graph whose input types are not known yet. From `few` on further shapes may share plans, and at once
        where it is known which values are `varying`. `is_body`: it runs in each iteration.
        """
        key = _contents(graph), varying
        found = self.later.get(key)
        if found is None:
            inner = graph if prepared else self.prepare(graph)
            # The key is of identities, so the graph has to live as long as it.
            make = partial(self._plan_body if is_body else self._plan_later, graph, inner)
            any_shapes = self.for_any_shapes(inner, varying)
            self.later[key] = found = PlanCache(make, self.options.PLAN_CACHE or SURE, any_shapes, 0 if varying else few)
        return found

    def for_any_shapes(
        self, graph: Graph, varying: frozenset[str] | None, growing: Callable[[Callable[[], Plan]], Plan] | None = None
    ) -> "AnyShapes | None":
        """Plans for further shapes of a prepared graph, or of a model whose inputs grow: `growing` calls what makes one.

        None where the host cannot run its nodes; for such models on other devices than CPUs too, which would wait for the host.
        """
        runs = (n.op.has_reference() or n.op.has_composition() or n.op.has_control() for n in graph.nodes)
        on_host = any(target.name == REFERENCE_DEVICE for target in self.targets) and all(runs)
        if graph.states or not on_host or (growing and self.devices[0].info.kind != "CPU"):
            return None
        make = (lambda *given: growing(partial(self._plan_open, *given))) if growing else self._plan_open_inside
        typed = partial(self._typed, graph)
        full = self.options.PLAN_CACHE or SURE
        from dovetail.planning.any_shapes import AnyShapes  # here, as below, because few models have so many shapes

        return AnyShapes(graph, typed, make, self._on_host_alone, varying, full, growing is not None)

    def _typed(self, graph: Graph, key: Signature) -> Typed:
        return type_and_fold(typed_inputs(graph, key), self.budget, self.options.MEMORY_LIMIT)

    def _plan_open(self, graph: Graph, varying: frozenset[str]) -> Plan:
        """The plan of a graph some of whose inputs have open shapes: the host runs what these change."""
        return self._planned(graph, None, varying=varying)

    def _plan_open_inside(self, graph: Graph, varying: frozenset[str]) -> Plan:
        """As `_plan_open`, of a graph in the middle of a model."""
        beside = self._beside(lambda: type_and_fold(graph, self.budget, self.options.MEMORY_LIMIT))
        return (beside and _brief(partial(beside._plan_open, graph, varying))) or self._plan_open(graph, varying)

    def _on_host_alone(self, graph: Graph) -> Plan:
        known = {name: t for name in graph.inputs if (t := graph.types.get(name)) is not None}
        inputs = tuple(range(len(graph.inputs)))
        from dovetail.planning.reporting import nothing

        start = Plan((), len(inputs), len(inputs), inputs, (), nothing, brief=True)
        nodes, rest = schedule(drop_dead_nodes(graph)).nodes, Graph((), graph.inputs, graph.outputs)
        return self._with_tail(start, Continuation(graph.inputs, nodes, rest, graph.constants), known)

    def _plan_body(self, _: Graph, inner: Graph, key: Signature) -> Plan:
        """The plan of a sub-graph. The host takes rows of large inputs, which would be copied to the device in each iteration."""
        from dovetail.planning.any_shapes import opened, read_in_parts

        parts = read_in_parts(inner, key, partial(self._typed, inner)) if self.for_any_shapes(inner, None) else frozenset()
        if parts:
            return self._plan_open_inside(opened(inner, key, parts), parts)
        beside = self._beside(lambda: self._typed(inner, key))
        return (beside and _brief(partial(beside._plan_later, _, inner, key))) or self._plan_later(_, inner, key)

    def _beside(self, typed: Callable[[], Typed]) -> "Planner | None":
        """A planner for a sub-graph by targets that take and give arrays of the host, whose values are there, as they are; None
        where no target does, or where the first one may take less time.
        """
        first, others = self.devices[0], tuple(t for t in self.targets if not t.device.round_trip)
        if not first.round_trip or not others or self.placement is not None:
            return None
        from dovetail.planning.any_shapes import takes_less_beside

        if not takes_less_beside(first, typed()):
            return None
        if "beside" not in self.memory:
            reason = Refusal(Reason.TIME, f"{first.round_trip * 1e6:.0f} us to and from the device, in each iteration")
            passed = tuple((t.name, reason) for t in self.targets if t.device.round_trip)
            self.memory["beside"] = replace(
                self, targets=others, passed_over=passed, memory={}, later=WeakValueDictionary(), outer=self
            )
        found: Planner = self.memory["beside"]
        return found

    def _plan_later(self, _: Graph, inner: Graph, key: Signature) -> Plan:
        return self.plan(typed_inputs(inner, key))

    def _continued(
        self, plan: Plan, whole: Graph, continuation: Continuation | None, varying: frozenset[str] = frozenset()
    ) -> Plan:
        """The plan of the whole graph with what follows it."""
        if continuation is None:
            return plan
        types = {live: whole.types[name] for live, name in zip(continuation.live, whole.outputs, strict=True)}
        return self._with_tail(plan, continuation, types, varying)

    def _with_tail(
        self,
        plan: Plan,
        continuation: Continuation,
        types: Mapping[str, TensorType],
        varying: frozenset[str] = frozenset(),
    ) -> Plan:
        """The plan, whose outputs are the values that live on, with what follows; `types` are theirs where they are known."""
        planner, sources = self.outer or self, dict[str, Source]({"": None, **continuation.constants})
        sources.update(zip(continuation.live, plan.outputs, strict=True))
        slots, steps = plan.slots, []
        for node in continuation.ready:
            writes = tuple(range(slots, slots + len(node.writes)))
            slots += len(writes)
            bodies = tuple(planner._body(graph, continuation.constants, sources, types) for graph in node.op.subgraphs)
            reads = tuple(sources[name] for name in node.inputs)
            contained = continuation.containers.issuperset(node.writes)
            steps.append(HostStep(node, reads, writes, bodies, self.options.MEMORY_LIMIT, contained))
            sources.update(zip(node.writes, writes, strict=True))
        rest = continuation.rest
        wanted = rest.inputs if rest.nodes else rest.outputs
        still = varying if not varying.isdisjoint(rest.inputs) else None
        tail = Tail(tuple(steps), planner._later(rest, varying=still, is_body=self.outer is not None) if rest.nodes else None)

        def report() -> "PlanReport":
            from dovetail.planning.reporting import with_nodes_on_host

            return with_nodes_on_host(plan.report, continuation.ready, len(rest.nodes), self.provider_of)

        return replace(plan, slots=slots, outputs=tuple(sources[n] for n in wanted), types=(), make_report=report, tail=tail)

    def _body(
        self, graph: Graph, constants: Mapping[str, NDArray[Any]], sources: Mapping[str, Source], outer: Mapping[str, TensorType]
    ) -> Body:
        """A sub-graph as a separate graph: what it reads from outside are further inputs, or constants."""
        known = {name: constants[name] for name in graph.captures if name in constants}
        captures = tuple(name for name in graph.captures if name not in known)
        whole = with_constants(graph.replace(inputs=(*graph.inputs, *captures)), known)
        declared = declared_signature([{**outer, **graph.types}.get(name) for name in whole.inputs])
        plans = self._later(whole, prepared=False, few=_FEW_BODIES, is_body=True)
        inferred = lru_cache(_FEW_BODIES)(partial(self._output_types, whole))
        return Body(graph, plans, tuple(sources[name] for name in captures), inferred, declared)

    def _output_types(self, graph: Graph, key: Signature) -> tuple[TensorType | None, ...]:
        """As `RunGraph.types`. What is wrong with a node is an error only where it runs."""
        try:
            return type_and_fold(typed_inputs(graph, key), self.budget, self.options.MEMORY_LIMIT, through=True).output_types
        except (OperatorError, OutOfMemory):
            return tuple([graph.types.get(name) for name in graph.outputs])


class Prepared:
    """A model's graph after the passes that need no shapes; they run on first use, once."""

    def __init__(self, planner: Callable[[], Planner], graph: Callable[[], Graph]) -> None:
        self._planner = planner
        self._graph = graph

    @cached_property
    def _done(self) -> tuple[Graph, Mapping[str, PassReport]]:
        notes = Notes()
        return self._planner().prepare(self._graph(), notes), notes.passes

    @property
    def graph(self) -> Graph:
        """The prepared graph."""
        return self._done[0]

    @property
    def reports(self) -> Mapping[str, PassReport]:
        """The records of its passes, by name."""
        return self._done[1]

    def growing(self, recorded: Callable[[Callable[[], Plan]], Plan]) -> Callable[[Shapes, Mapping[Shapes, Plan]], Plan | None]:
        """Gives the plan for further shapes, beside those that there are, where the shapes of inputs grow: None for others.

        `recorded` calls what makes a plan.
        """
        found: list[AnyShapes | None] = []

        def key(given: Shapes) -> Signature:
            dtypes = [self.graph.types[name].dtype for name in self.graph.inputs]
            return tuple([(dtype, shape or ()) for dtype, shape in zip(dtypes, given, strict=True)])

        def instead(shapes: Shapes, plans: Mapping[Shapes, Plan]) -> Plan | None:
            if not found:
                found.append(self._planner().for_any_shapes(self.graph, None, recorded))
            any_shapes = found[0]
            if any_shapes is None or None in shapes:
                return None
            new, latest = key(shapes), [*plans.items()][-GROWING:]
            return any_shapes.serving(new) or any_shapes(new, {key(one): plan for one, plan in latest})

        return instead


def _contents(graph: Graph) -> Hashable:
    """Equal for graphs of the same nodes and constants; small constants are compared, because plans make them of sizes."""
    constants = [
        (name, (a.dtype, a.shape, a.tobytes()) if a.size <= _SMALL and a.dtype != object else id(a))
        for name, a in graph.constants.items()
    ]
    return (*map(id, graph.nodes), graph.inputs, graph.outputs, *constants)


def _require_host(continuation: Continuation, targets: Sequence[Target]) -> None:
    if not any(target.name == REFERENCE_DEVICE for target in targets):
        from dovetail.planning.deferred import why_on_host

        node = continuation.ready[0]
        raise UnsupportedNode(
            f"no device runs node {node}: {Refusal(Reason.DYNAMIC, why_on_host(node))}",
            hint=f"let FALLBACK be True: {REFERENCE_DEVICE} runs it",
        )


def _brief(make: Callable[[], Plan]) -> Plan | None:
    """The plan, if a target supports its nodes and it is brief."""
    with suppress(UnsupportedNode):
        plan = make()
        return plan if plan.brief else None
    return None


def improving(made: Plan, afresh: Callable[[], Plan]) -> Plan:
    """The plan; one that a device made provisionally has that of `afresh` as its better one."""
    hurried = [step.executable for step in made.steps if step.executable.provisional]
    if made.better is not None or made.tail is not None or not hurried:
        return made
    from dovetail.planning.better import Better  # here, because few devices make provisional plans

    return replace(made, better=Better(afresh, min([one.provisional_runs for one in hurried])))
