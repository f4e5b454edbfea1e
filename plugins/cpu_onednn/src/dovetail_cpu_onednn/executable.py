"""A compiled graph: primitives for each node, weights in their layouts and a memory plan."""

import threading
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import cast

from dovetail.dataclass import dataclass
from dovetail.device import (
    Arenas,
    ConstantReaders,
    Executable,
    Graph,
    Node,
    NodeReport,
    Refusal,
    TensorType,
    TypedNode,
    phase,
    plan_graph,
    share_storage,
)
from dovetail.errors import CompileError, InferError
from dovetail_cpu_onednn.binding import Primitive, PrimitiveDesc, Unimplemented
from dovetail_cpu_onednn.constants import ConstantMemory, Found, LaidOut, brought, found_constants, is_moved
from dovetail_cpu_onednn.descriptors import padded_type
from dovetail_cpu_onednn.kernel import Argument, NodePlan, OnednnKernel, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import ALIGNMENT, naming_out_of_memory
from dovetail_cpu_onednn.nan.bounds import clip_checks
from dovetail_cpu_onednn.nan.fused_steps import nan_checks
from dovetail_cpu_onednn.node_plans import is_cached
from dovetail_cpu_onednn.pair import Helper
from dovetail_cpu_onednn.python_kernel import Array, PythonKernel
from dovetail_cpu_onednn.repeated import Kinds, kinds_of
from dovetail_cpu_onednn.request import CLOSED, OnednnRequest
from dovetail_cpu_onednn.shared_constants import Constant, SharedConstants
from dovetail_cpu_onednn.threads import SHORT_NS

__all__ = ["Decided", "OnednnExecutable", "Placement", "Prepared", "Seen"]


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions about a node, for compiling it in other sizes: the fields of `Placement`, oneDNN's implementations, and the
    values in whose memory the result may be written. `implementation` is "" for other kernels than primitives.
    """

    kernel: OnednnKernel
    label: str
    refusals: tuple[tuple[str, Refusal], ...]
    implementation: str
    is_reference: bool
    in_place: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A node as it was given and as it runs, with its work: nanoseconds on one thread, and how often threads wait in it.

    It identifies the group of the nodes that are alike.
    """

    given: TypedNode
    node: TypedNode
    work: tuple[float, int]


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with the kernel that runs it, the kernel's label, and the refusals of the kernels before it in the list.

    `threads` is how many threads share the node, `nanoseconds` the estimated time of one; `earlier` is what was decided about it
    in other sizes. Nodes of one `group` are alike (see `repeated`), and so are their placements.
    """

    node: TypedNode
    kernel: OnednnKernel
    label: str
    refusals: tuple[tuple[str, Refusal], ...]
    threads: int = 1
    earlier: Decided | None = None
    nanoseconds: float = 0.0
    group: object = None

    @property
    def in_place(self) -> Sequence[str]:
        """The values in whose memory output 0 may be written."""
        node, known = self.node.node, self.earlier.in_place if self.earlier is not None and self.earlier.implementation else None
        names = self.kernel.in_place(self.node) if known is None else known
        if not names or not node.outputs[0]:
            return ()
        types = dict(zip((*node.inputs, *node.operands), (*self.node.inputs, *self.node.operands), strict=True))
        return tuple([name for name in names if types[name] == self.node.outputs[0]])

    @property
    def is_short(self) -> bool:
        """Whether the node takes so little time that other threads of Python may wait for it."""
        return self.threads == 1 and self.nanoseconds < SHORT_NS

    @property
    def continued(self) -> Mapping[str, str]:
        """The outputs that may be written in the memory of an input that is a state, with these inputs."""
        node = self.node.node
        types = dict(zip((*node.inputs, *node.writes), (*self.node.inputs, *self.node.outputs), strict=True))
        return {name: past for name, past in self.kernel.continued(self.node).items() if types[name] == types[past]}

    @property
    def report(self) -> NodeReport:
        """The plan's report on the node."""
        node = self.node.node
        chain = self.kernel.chain(self.node)
        return NodeReport(node.name, node.op.key, self.label, self.kernel.from_operator, chain, node.origins, self.refusals)


@dataclass(frozen=True)
class Prepared:
    """A stage with its primitive, the constants that were brought into its layouts, and the size of its scratchpad."""

    stage: Stage
    primitive: Primitive
    constants: Mapping[int, Constant]
    scratchpad: int


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """The plan of a node, and those of its stages that run where the result shares the memory of these operands.

    `scratch` has the bytes of its work buffers: of the primitives' own, which take turns in one, and of the plan's.
    """

    sharing: tuple[bool, ...]
    plan: NodePlan
    stages: tuple[Stage, ...]
    scratch: tuple[int, ...]


Task = tuple[Placement, tuple[Stage, ...]]
"""A node and those of its stages whose primitives are to be made."""


class OnednnExecutable(Executable):
    """A graph with primitives for each node, weights in their layouts and a memory plan; shared by its requests.

    `threads` is how many the device may use, `shared_by` how many this plan does. `shared` has the constants of the executables
    of the same compilation, `arenas` the memory of its requests. `earlier` is the graph in other sizes: nodes with its placements
    are as they were there. `plans` are those by which kernels accepted nodes, in plain types. `seen` are its nodes as the device
    compared them with those before. `blocks` are the bytes of the memory in which each output lies.
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
    ) -> None:
        self.arenas = arenas
        self.seen: Mapping[str, Seen] = {}
        self.graph = graph
        self.threads = threads
        self.shared_by = max((p.threads for p in placements), default=1)
        self.notes = _notes(placements, threads)
        sized = graph.replace(types=_sized(graph, placements))
        placed, taken = ({}, {}) if earlier is None else (earlier._placed, earlier._takes)
        self._takes = takes = {(n := p.node.node.name): taken[n] if placed.get(n) is p else _taken(p) for p in placements}

        def scratch(node: Node) -> Sequence[int]:
            found = self.planned.get(node.name)
            return () if found is None else found.scratch

        # The memory of a result decides between a sum in place and a binary post-op, so storage is planned before.
        self._decisive = decisive = _decisive(sized, takes)
        is_again = earlier is not None and not graph.states and earlier._decisive == decisive
        storage = earlier.memory.storage if is_again and earlier is not None else share_storage(sized, lambda n: takes[n.name])
        self.blocks = {name: sized.types[storage[name]].nbytes for name in graph.outputs}
        kept = {} if earlier is None else earlier.kept(placements, storage)
        # Looked up once: another thread may close that executable.
        before, was, decided = ({}, {}, {}) if earlier is None else (earlier.prepared, earlier.planned, earlier.decided)
        nodes = [p.node for p in placements]
        self.clip_checks = clip_checks(nodes, graph.constants)
        self.nan_checks, self.final_nan_checks = nan_checks(nodes, graph.outputs)
        self.checks_values = bool(self.clip_checks or self.nan_checks or self.final_nan_checks)
        self.constants: Mapping[str, Array] = LaidOut(graph)
        self.planned: dict[str, Planned] = {}
        self._placed: dict[str, Placement] = {}
        self.decided: dict[str, Decided] = {}
        found: dict[str, list[Found]] = {}
        alike: dict[object, Planned] = {}
        first: dict[int, str] = {}
        as_first: dict[str, str] = {}
        asked: set[PrimitiveDesc] = set()
        with Helper(_make, threads) as helper:
            # All about one node after the other: the second thread gets Python's lock while oneDNN chooses, and seldom else.
            for placement in placements:
                name, planned = placement.node.node.name, None
                if name in kept:
                    planned = self.planned[name] = kept[name][0]
                elif isinstance(placement.kernel, PrimitiveKernel):
                    planned = self.planned[name] = _planned(placement, storage, helper, alike, plans.get(name))
                    known = [one.constants for one in before.get(name, ())]
                    model = first.setdefault(id(planned), name)
                    is_alike = model is not name and name in before and was.get(name) is was.get(model) is not None
                    if is_alike and _are_before(found[model], before.get(model, ())):
                        as_first[name] = model
                    else:
                        found[name] = found_constants(placement.node, planned.stages, known, self.constants, shared)
                elif isinstance(placement.kernel, PythonKernel):
                    library().plan_threads(placement.threads)
                    descs = {desc for desc in placement.kernel.primitives(placement.node) if desc.primitive is None} - asked
                    if descs:
                        asked |= descs
                        helper.add((placement, tuple([Stage(desc, ()) for desc in descs])))
                if name in kept:
                    self._placed[name], self.decided[name] = placement, decided[name]
                else:
                    self._placed[name] = labelled = _relabelled(placement, planned)
                    self.decided[name] = _decided(labelled, planned, takes[name])
            self.placements = placements = tuple(self._placed.values())
            continued = {p.node.name: p.continued for p in placements} if graph.states else {}
            self.memory = plan_graph(
                sized,
                lambda n: takes[n.name],
                scratch,
                ALIGNMENT,
                continues=lambda n: continued.get(n.name, {}),
                storage=None if graph.states else storage,
                earlier=None if earlier is None else earlier.memory,
            )
        self.prepared: Mapping[str, tuple[Prepared, ...]] = {
            **{name: stages for name, (_, stages) in kept.items()},
            **(prepared := self._prepare(found, shared)),
            **{name: _prepared_as(prepared[model], before[name]) for name, model in as_first.items()},
        }

        self._requests: weakref.WeakSet[OnednnRequest] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def kept(
        self, placements: Sequence[Placement], storage: Mapping[str, str]
    ) -> Mapping[str, tuple[Planned, tuple[Prepared, ...]]]:
        """The plans and primitives of the nodes that have the same placement, and share memory in the same way."""
        placed, planned, prepared, found = self._placed, self.planned, self.prepared, {}
        for placement in placements:
            name = placement.node.name
            known = planned.get(name) if placed.get(name) is placement and name in prepared else None
            if known is not None and known.sharing == _sharing(placement, storage):
                found[name] = known, prepared[name]
        return found

    def _prepare(self, found: Mapping[str, list[Found]], shared: SharedConstants) -> dict[str, tuple[Prepared, ...]]:
        """The stages of nodes, with the constants that were found for them and those that are missing."""
        missing = [(self._placed[n].node, a) for n, stages in found.items() for _, arguments in stages for a in arguments]
        memory, prepared = ConstantMemory(missing), {}
        brings = any(argument.place in ("input", "operand") and argument.content is None for _, argument in missing)
        readers = ConstantReaders(self.graph) if brings else None
        for name, planned in self.planned.items():
            if name in found:
                stages = zip(planned.stages, found[name], strict=True)
                prepared[name] = tuple([_prepare(self._placed[name], stage, *one, memory, shared) for stage, one in stages])
            if readers is not None:
                readers.copied(_copied(self._placed[name].node.node, planned))
        return prepared

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
        for request in requests:
            request.close()
        self.arenas.clear()


def _notes(placements: Sequence[Placement], threads: int) -> tuple[str, ...]:
    alone = sum(p.threads == 1 for p in placements)
    if threads == 1 or not alone:
        return ()
    return (f"ONEDNN: {alone} of {len(placements)} nodes run on one thread, because their work is too small for {threads}",)


def _sized(graph: Graph, placements: Sequence[Placement]) -> Mapping[str, TensorType]:
    """The types as the memory plan counts them: with whole blocks of channels, and with all that kernels write."""
    found = {name: padded_type(t) if t.is_static else t for name, t in graph.types.items()}
    for placement in placements:
        found.update(placement.kernel.types_in_memory(placement.node))
    return found


def _decisive(graph: Graph, takes: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """Equal for graphs of the same nodes and layouts in other sizes whose values share memory in the same way."""
    types, numbers = graph.types, dict[int, int]()
    names = [*graph.inputs, *[name for node in graph.nodes for name in node.writes]]
    sizes = [numbers.setdefault(types[name].nbytes, len(numbers)) for name in names]
    return sizes, takes, [types[name].layout for name in names], [node.op.is_view for node in graph.nodes]


def _taken(placement: Placement) -> Sequence[str]:
    known = placement.earlier
    if known is not None and known.implementation and not known.in_place:
        return ()
    library().plan_threads(placement.threads)
    return placement.in_place


def _planned(
    placement: Placement,
    storage: Mapping[str, str],
    helper: Helper[Task],
    alike: MutableMapping[object, Planned],
    found: NodePlan | None,
) -> Planned:
    """The plan of a node. The helper makes its primitives.

    `alike` are the plans of the groups of nodes, `found` is the plan by which the kernel accepted this one.
    """
    sharing = _sharing(placement, storage)
    key = None if placement.group is None or not is_cached(placement.kernel) else (placement.group, sharing)
    if key is not None and (known := alike.get(key)) is not None:
        return known
    with naming_out_of_memory(placement.node.node), phase(placement.node.name, "prepare", kernel=placement.label):
        plan = _plan(placement, any(sharing), found)
    # Without copies of operands in whose memory the result is written.
    stages = tuple([s for s in plan.stages if s.unless_shared is None or not sharing[s.unless_shared]])
    if any(stage.desc.primitive is None for stage in stages):
        helper.add((placement, stages))
    size = max([stage.desc.scratchpad[1] for stage in plan.stages], default=0)
    planned = Planned(sharing, plan, stages, (size, *plan.scratch) if size or plan.scratch else ())
    if key is not None:
        alike[key] = planned
    return planned


def _sharing(placement: Placement, storage: Mapping[str, str]) -> tuple[bool, ...]:
    """For each operand of the post-ops whether the result is written in its memory."""
    node = placement.node.node
    return tuple([storage[name] == storage[node.outputs[0]] for name in node.operands]) if node.post_ops else ()


def _make(task: Task) -> None:
    """Makes the primitives of a node."""
    placement, stages = task
    with naming_out_of_memory(placement.node.node), phase(placement.node.name, "prepare", what="the primitives"):
        library().plan_threads(placement.threads)
        for stage in stages:
            library().primitive(stage.desc)


def _plan(placement: Placement, shared: bool, found: NodePlan | None) -> NodePlan:
    node, kernel = placement.node, cast(PrimitiveKernel, placement.kernel)
    library().plan_threads(placement.threads)
    try:
        return kernel.final(node, shared, found)
    except Refused as answer:
        raise CompileError(f"ONEDNN, node {node.node}: {answer.refusal}") from None
    except Unimplemented as error:
        raise CompileError(f"ONEDNN, node {node.node}: {error.message}") from error


def _decided(placement: Placement, planned: Planned | None, in_place: Sequence[str]) -> Decided:
    name, is_reference = ("", False) if planned is None else (planned.plan.name, planned.plan.is_reference)
    known = placement.earlier
    if known is not None and known.implementation == name and known.in_place == in_place:
        return known
    return Decided(placement.kernel, placement.label, placement.refusals, name, is_reference, in_place)


def _relabelled(placement: Placement, planned: Planned | None) -> Placement:
    """The placement with the name of the implementation that oneDNN has for these sizes.

    Raises `CompileError` where it has only a slow one, unlike before.
    """
    earlier, plan = placement.earlier, None if planned is None else planned.plan
    if plan is None or earlier is None or plan.name == earlier.implementation:
        return placement
    if (plan.is_reference and not earlier.is_reference) or ("gemm" in plan.name and "gemm" not in earlier.implementation):
        raise CompileError(f"ONEDNN has only {plan.name} for node {placement.node.node} in these sizes")
    assert isinstance(placement.kernel, PrimitiveKernel)
    return replace(placement, label=placement.kernel.label(plan.name, placement.node))


def _copied(node: Node, planned: Planned) -> list[str]:
    """The inputs that a node has copied, if they are constants: none that it reads in place."""
    reads = [a for stage in planned.stages for a in stage.arguments if a.place == "input"]
    in_place = {a.index for a in reads if not is_moved(a)}
    return [node.inputs[index] for index in {a.index for a in reads} - in_place]


def _are_before(found: Sequence[Found], before: Sequence[Prepared]) -> bool:
    """Whether the constants of a node are those of other sizes. Then the other nodes of its group that had its plan there have
    theirs, too: that the node of each name has the same constants was compared (see `repeated`).
    """
    same = all(not missing and known == one.constants for (known, missing), one in zip(found, before, strict=False))
    return same and len(found) == len(before)


def _prepared_as(stages: Sequence[Prepared], before: Sequence[Prepared]) -> tuple[Prepared, ...]:
    """The stages of another node of the group, with constants of before."""
    pairs = zip(stages, before, strict=True)
    return tuple([Prepared(one.stage, one.primitive, known.constants, one.scratchpad) for one, known in pairs])


def _prepare(
    placement: Placement,
    stage: Stage,
    constants: dict[int, Constant],
    missing: Sequence[Argument],
    memory: ConstantMemory,
    shared: SharedConstants,
) -> Prepared:
    node, lib = placement.node, library()
    if stage.desc.primitive is not None and not missing:
        return Prepared(stage, stage.desc.primitive, constants, lib.scratchpad(stage.desc))
    lib.plan_threads(placement.threads)
    with naming_out_of_memory(node.node), phase(node.name, "prepare", what="constants and the primitive"):
        new = {argument.arg: brought(node, argument, memory, shared) for argument in missing}
        return Prepared(stage, lib.primitive(stage.desc), constants | new, lib.scratchpad(stage.desc))
