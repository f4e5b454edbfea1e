"""A compiled graph: primitives for each node, weights in their layouts and a memory plan."""

import weakref
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dovetail.dataclass import dataclass, field
from dovetail.device import (
    PLAIN,
    Arenas,
    ConstantReaders,
    Executable,
    Graph,
    MemoryPlan,
    NodeReport,
    TensorType,
    TypedNode,
    plan_graph,
    share_storage,
)
from dovetail.errors import InferError
from dovetail.locks import Lock, cached_property
from dovetail_cpu_onednn.binding import PrimitiveDesc
from dovetail_cpu_onednn.constants import ConstantMemory, Found, LaidOut, found_constants
from dovetail_cpu_onednn.descriptors import padded_type
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.making import Making, maker
from dovetail_cpu_onednn.memory import ALIGNMENT, naming_out_of_memory
from dovetail_cpu_onednn.nan.bounds import clip_checks
from dovetail_cpu_onednn.nan.fused_steps import NanChecks, nan_checks
from dovetail_cpu_onednn.placement import Decided, Placement, Seen, notes_of
from dovetail_cpu_onednn.planned import (
    Planned,
    Prepared,
    are_before,
    copied,
    decided,
    plan_node,
    planned_as,
    prepared_as,
    prepared_with,
    relabelled,
    sharing_of,
    stage_constants,
)
from dovetail_cpu_onednn.python_kernel import Array, PythonKernel
from dovetail_cpu_onednn.repeated import Kinds, kinds_of
from dovetail_cpu_onednn.request import CLOSED, OnednnRequest
from dovetail_cpu_onednn.shared_constants import Constant, SharedConstants

if TYPE_CHECKING:
    from dovetail_cpu_onednn.batch_parts import InBatch

__all__ = ["OnednnExecutable"]


class OnednnExecutable(Executable):
    """A graph with primitives for each node, weights in their layouts and a memory plan; shared by its requests.

    `threads` is how many the device may use, `shared_by` how many this plan does. `shared` has the constants of the executables
    of the same compilation, `arenas` the memory of its requests. `earlier` is the graph in other sizes: nodes with its placements
    are as they were there. `plans` are those by which kernels accepted nodes, in plain types. `seen` are its nodes as the device
    compared them with those before. `blocks` are the bytes of the memory in which each output lies. One that `hurries` takes the
    primitives of smaller batches where it can, and is provisional then. `others` are those of the graph that was compiled last.
    """

    _takes: Mapping[str, Sequence[str]]

    def __init__(
        self,
        graph: Graph,
        placements: tuple[Placement, ...],
        threads: int,
        shared: SharedConstants,
        arenas: Arenas,
        earlier: "OnednnExecutable | None" = None,
        plans: Mapping[str, NodePlan] = MappingProxyType({}),
        hurries: bool = False,
        others: "Mapping[str, tuple[InBatch, ...]]" = MappingProxyType({}),
    ) -> None:
        self.arenas = arenas
        self.seen: Mapping[str, Seen] = {}
        self.graph = graph
        self.threads = threads
        self.shared_by = max((p.threads for p in placements), default=1)
        self.clip_checks, self.nan_checks = _checks(placements, graph)
        sized = graph.replace(types=_sized(graph, placements))
        placed, taken = ({}, {}) if earlier is None else (earlier._placed, earlier._takes)
        self._takes = _all_taken(placements, placed, taken)
        # The memory of a result decides between a sum in place and a binary post-op, so storage is planned before.
        storage = self._storage(sized, earlier)
        self.constants: Mapping[str, Array] = LaidOut(graph)
        self.planned: dict[str, Planned] = {}
        self._placed: dict[str, Placement] = {}
        self.decided: dict[str, Decided] = {}
        self.in_parts: dict[str, tuple[Prepared, ...]] = {}
        hurries = hurries and earlier is not None and not graph.states
        before = _Before() if earlier is None else _Before.of(earlier, placements, storage, hurries, others)
        with maker(threads) as helper:
            found, as_first = self._plan_nodes(placements, storage, before, plans, shared, helper, hurries)
            self.placements = tuple(self._placed.values())
            spare = [(self._placed[name].node, one.spare) for name, one in self.planned.items() if one.spare is not None]
            sized = self._with_room(sized, storage, spare)
            self.blocks = {name: sized.types[storage[name]].nbytes for name in graph.outputs}
            self.memory = self._memory(sized, storage, earlier)
            constants = self._constants_of(found, shared)  # meanwhile the second thread makes primitives
        self.prepared: Mapping[str, tuple[Prepared, ...]] = {
            **{name: stages for name, (_, stages) in before.kept.items()},
            **(prepared := {name: prepared_with(self.planned[name].stages, one) for name, one in constants.items()}),
            **{name: prepared_as(prepared[model], before.prepared[name]) for name, model in as_first.items()},
            **self.in_parts,
        }
        self._set_provisional(bool(spare))
        self.notes = notes_of(placements, threads, len(self.in_parts), len(spare))
        self._batches_before = others if earlier is None else before.batches
        self._requests: weakref.WeakSet[OnednnRequest] = weakref.WeakSet()
        self._lock = Lock()
        self._is_closed = False

    def _with_room(self, sized: Graph, storage: Mapping[str, str], spare: Sequence[tuple[TypedNode, TypedNode]]) -> Graph:
        """The graph with room for spare rows of nodes."""
        if not spare:
            return sized
        from dovetail_cpu_onednn.spare_rows import with_room  # here and below, because few plans have them

        return with_room(sized, storage, spare)

    def _set_provisional(self, has_spare: bool) -> None:
        """Let a better executable follow where nodes run in parts or with spare rows."""
        if self.in_parts:
            from dovetail_cpu_onednn.batch_parts import worth_runs  # here, because few executables are provisional

            self.provisional, self.provisional_runs = True, worth_runs(self.in_parts)
        elif has_spare:
            from dovetail_cpu_onednn.spare_rows import RUNS

            self.provisional, self.provisional_runs = True, RUNS

    def _storage(self, sized: Graph, earlier: "OnednnExecutable | None") -> Mapping[str, str]:
        """In whose memory each value lies: as in the other sizes, where nothing that decides about it has changed."""
        self._sized = sized
        if earlier is not None and not sized.states and earlier._decisive == self._decisive:
            return earlier.memory.storage
        return share_storage(sized, lambda n: self._takes[n.name])

    @cached_property
    def _decisive(self) -> tuple[object, ...]:
        """Equal where values share memory in the same way; asked for when other sizes come."""
        return _decisive(self._sized, self._takes)

    def _plan_nodes(
        self,
        placements: Sequence[Placement],
        storage: Mapping[str, str],
        before: "_Before",
        plans: Mapping[str, NodePlan],
        shared: SharedConstants,
        helper: Making,
        hurries: bool,
    ) -> tuple[dict[str, list[Found]], dict[str, str]]:
        """Plan the nodes that are not kept: all about one node after the other, because the second thread gets Python's lock
        while oneDNN chooses, and seldom else.

        Returns the constants that were found for nodes, and for others that have those of an alike node, as before, its name.
        """
        found: dict[str, list[Found]] = {}
        as_first: dict[str, str] = {}
        alike: dict[object, Planned] = {}
        firsts = _Firsts(before) if before.prepared else None
        asked: set[PrimitiveDesc] = set()
        may_spare, threads = self.graph if hurries else None, 0
        for placement in placements:
            name, planned = placement.node.node.name, None
            if self._is_before(placement, before):
                continue
            if placement.threads != threads:
                threads = placement.threads
                library().plan_threads(threads)
            plan = plans.get(name)
            if isinstance(placement.kernel, PrimitiveKernel):
                planned = self.planned[name] = plan_node(placement, storage, helper, alike, plan, may_spare)
                if firsts is None:
                    found[name] = found_constants(placement.node, planned.stages, (), self.constants, shared)
                elif (model := firsts.model(name, planned)) is not None:
                    as_first[name] = model
                else:
                    known = before.constants(name)
                    found[name] = found_constants(placement.node, planned.stages, known, self.constants, shared)
                    firsts.note(name, are_before(found[name], known))
            elif isinstance(placement.kernel, PythonKernel):
                descs = {desc for desc in placement.kernel.primitives(placement.node) if desc.primitive is None} - asked
                if descs:
                    asked |= descs
                    helper.add((placement, tuple([Stage(desc, ()) for desc in descs])))
            self._placed[name] = labelled = relabelled(placement, planned, plan)
            self.decided[name] = decided(labelled, planned, self._takes[name])
        return found, as_first

    def _is_before(self, placement: Placement, before: "_Before") -> bool:
        """Whether the node runs as in other sizes, or by the primitives of smaller batches: then it is noted so."""
        name = placement.node.node.name
        if (kept := before.kept.get(name)) is not None:
            self.planned[name] = kept[0]
            if name in before.in_parts:
                self.in_parts[name] = kept[1]
        elif (parts := before.parts.get(name)) is not None:
            self.in_parts[name], self.planned[name] = parts, planned_as(parts)
        else:
            return False
        self._placed[name], self.decided[name] = placement, before.decided[name]
        return True

    def _memory(self, sized: Graph, storage: Mapping[str, str], earlier: "OnednnExecutable | None") -> MemoryPlan:
        """The memory of a request: values, and the work buffers of nodes."""
        planned, placed = self.planned, self._placed
        return plan_graph(
            sized,
            lambda n: self._takes[n.name],
            lambda n: planned[n.name].scratch if n.name in planned else (),
            ALIGNMENT,
            continues=lambda n: placed[n.name].kernel.continued(placed[n.name].node),
            storage=None if sized.states else storage,
            earlier=None if earlier is None else earlier.memory,
        )

    @cached_property
    def batches(self) -> "Mapping[str, tuple[InBatch, ...]]":
        """By name of a node its primitives for the latest batches; asked for when other sizes come."""
        from dovetail_cpu_onednn.batch_parts import noted  # here, because most programs have one size

        prepared = self.prepared  # another thread may close it
        whole = {name: stages for name, stages in prepared.items() if name not in self.in_parts}
        return noted(self._batches_before, self.placements, whole)

    def kept(
        self, placements: Sequence[Placement], storage: Mapping[str, str]
    ) -> Mapping[str, tuple[Planned, tuple[Prepared, ...]]]:
        """The plans and primitives of the nodes that have the same placement, and share memory in the same way."""
        placed, planned, prepared, found = self._placed, self.planned, self.prepared, {}
        for placement in placements:
            name = placement.node.name
            known = planned.get(name) if placed.get(name) is placement and name in prepared else None
            is_alike = known is not None and known.sharing == sharing_of(placement, storage)
            if known is not None and is_alike and known.fits(placement.node, self.graph, storage):
                found[name] = known, prepared[name]
        return found

    def _constants_of(
        self, found: Mapping[str, list[Found]], shared: SharedConstants
    ) -> dict[str, Sequence[Mapping[int, Constant]]]:
        """By node the constants of its stages: those that were found, and those that are missing, in the layouts they take."""
        missing = [(self._placed[n].node, a) for n, stages in found.items() for _, arguments in stages for a in arguments]
        memory, constants = ConstantMemory(missing), dict[str, Sequence[Mapping[int, Constant]]]()
        brings = any(argument.place in ("input", "operand") and argument.content is None for _, argument in missing)
        readers = ConstantReaders(self.graph) if brings else None
        for name, planned in self.planned.items():
            if name in found:
                constants[name] = stage_constants(self._placed[name], found[name], memory, shared)
            if readers is not None:
                readers.copied(copied(self._placed[name].node.node, planned))
        return constants

    @cached_property
    def kinds(self) -> Kinds:
        """Those of the nodes as they were given, for other sizes; asked for when these come."""
        return kinds_of(one.given for one in self.seen.values())

    @cached_property
    def reports(self) -> tuple[NodeReport, ...]:  # type: ignore[override]  # made when read: few plans are looked at
        """One for each node that runs, in execution order."""
        return tuple(p.report for p in self.placements)

    def create_request(self) -> "OnednnRequest":
        """A new request with a separate arena. Raises `OutOfMemory`, and `InferError` after `close`."""
        with naming_out_of_memory():
            request = OnednnRequest(self)
        with self._lock:
            if not self._is_closed:
                self._requests.add(request)
                return request
        raise InferError(CLOSED)

    def held(self) -> tuple[Mapping[str, tuple[Prepared, ...]], Mapping[str, Array]]:
        """The prepared primitives of each node, and the constants. Raises `InferError` after `close`."""
        with self._lock:
            if self._is_closed:
                raise InferError(CLOSED)
            return self.prepared, self.constants

    def close(self) -> None:
        """Free primitives and constants, and close all requests; a run in progress keeps what it uses until it ends."""
        with self._lock:
            self._is_closed = True
            requests, self._requests = list(self._requests), weakref.WeakSet()
            # New dictionaries: a run in progress reads the old ones.
            self.planned, self.prepared, self.constants = {}, {}, {}
            self.in_parts, self._batches_before, self.batches = {}, {}, {}
        for request in requests:
            request.close()
        self.arenas.clear()


@dataclass(frozen=True)
class _Before:
    """The nodes of an executable for other sizes, looked up once: another thread may close it. `kept` stay as they are."""

    kept: Mapping[str, tuple[Planned, tuple[Prepared, ...]]] = field(default_factory=dict)
    prepared: Mapping[str, tuple[Prepared, ...]] = field(default_factory=dict)
    planned: Mapping[str, Planned] = field(default_factory=dict)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    batches: "Mapping[str, tuple[InBatch, ...]]" = field(default_factory=dict)
    in_parts: Container[str] = ()
    parts: Mapping[str, tuple[Prepared, ...]] = field(default_factory=dict)

    @staticmethod
    def of(
        earlier: OnednnExecutable,
        placements: Sequence[Placement],
        storage: Mapping[str, str],
        hurries: bool,
        others: "Mapping[str, tuple[InBatch, ...]]",
    ) -> "_Before":
        """Those of an executable, for these placements. Unless the new one `hurries`, no node stays in parts or with spare
        rows.
        """
        from dovetail_cpu_onednn.batch_parts import all_in_parts, merged  # here, because most programs have one size

        kept, in_parts = earlier.kept(placements, storage), earlier.in_parts
        if not hurries:
            kept = {name: one for name, one in kept.items() if name not in in_parts and one[0].spare is None}
        batches, changed = merged(earlier.batches, others), [one for one in placements if one.node.node.name not in kept]
        parts = all_in_parts(changed, batches) if hurries and batches else {}
        return _Before(kept, earlier.prepared, earlier.planned, earlier.decided, batches, in_parts.keys(), parts)

    def are_one(self, name: str, model: str) -> bool:
        """Whether two nodes had the same plan."""
        return name in self.prepared and self.planned.get(name) is self.planned.get(model) is not None

    def constants(self, name: str) -> list[Mapping[int, Constant]]:
        """Those of each stage of a node."""
        return [one.constants for one in self.prepared.get(name, ())]


class _Firsts:
    """The first node of each plan, and whether its constants are as before: then so are those of the others (`are_before`)."""

    def __init__(self, before: _Before) -> None:
        self._before = before
        self._names: dict[int, str] = {}
        self._as_before: dict[str, bool] = {}

    def model(self, name: str, planned: Planned) -> str | None:
        """The first node of the plan, where this one had its plan before, too, and its constants are as before; else None."""
        first = self._names.setdefault(id(planned), name)
        return first if self._as_before.get(first) and self._before.are_one(name, first) else None

    def note(self, name: str, as_before: bool) -> None:
        """Whether the constants of a node are as before."""
        self._as_before[name] = as_before


def _checks(placements: Sequence[Placement], graph: Graph) -> tuple[Mapping[str, tuple[str, ...] | None], NanChecks]:
    """The checks of runs because of fused steps: see `clip_checks` and `nan_checks`."""
    nodes = [p.node for p in placements]
    if not any(node.node.post_ops for node in nodes):
        return {}, NanChecks({}, (), frozenset())
    guarded = {p.node.node.name for p in placements if p.kernel.stops_nan and p.kernel.is_guarded(p.node)}
    return clip_checks(nodes, graph.constants), nan_checks(nodes, graph.outputs, guarded)


def _sized(graph: Graph, placements: Sequence[Placement]) -> Mapping[str, TensorType]:
    """The types as the memory plan counts them: with whole blocks of channels, and with all that kernels write."""
    found = {name: t if t.layout is PLAIN or not t.is_static else padded_type(t) for name, t in graph.types.items()}
    for placement in placements:
        if more := placement.kernel.types_in_memory(placement.node):
            found.update(more)
    return found


def _decisive(graph: Graph, takes: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """Equal for graphs of the same nodes and layouts in other sizes whose values share memory in the same way."""
    types, numbers = graph.types, dict[int, int]()
    names = [*graph.inputs, *[name for node in graph.nodes for name in node.writes]]
    sizes = [numbers.setdefault(types[name].nbytes, len(numbers)) for name in names]
    return sizes, takes, [types[name].layout for name in names], [node.op.is_view for node in graph.nodes]


def _all_taken(
    placements: Sequence[Placement], placed: Mapping[str, Placement], taken: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """By node the values in whose memory output 0 may be written: as `taken` has it, where the placement is as before."""
    found, threads = dict[str, Sequence[str]](), 0
    for placement in placements:
        name, known = placement.node.node.name, placement.earlier
        if placed.get(name) is placement:
            found[name] = taken[name]
        elif known is not None and known.implementation and not known.in_place:
            found[name] = ()
        else:
            if placement.threads != threads:
                threads = placement.threads
                library().plan_threads(threads)
            found[name] = placement.in_place
    return found
