"""A compiled graph: primitives for each node, weights in their layouts and a memory plan."""

import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import (
    Arenas,
    Executable,
    Graph,
    Node,
    NodeReport,
    Refusal,
    TensorType,
    TypedNode,
    let_go,
    phase,
    plan_graph,
    share_storage,
)
from dovetail.errors import CompileError, InferError
from dovetail_cpu_onednn.binding import MemoryDesc, Primitive, Unimplemented
from dovetail_cpu_onednn.descriptors import padded_type
from dovetail_cpu_onednn.kernel import Argument, NodePlan, OnednnKernel, PrimitiveKernel, Refused, Stage, given, value_of
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import ALIGNMENT, aligned, naming_out_of_memory
from dovetail_cpu_onednn.nan.bounds import clip_checks
from dovetail_cpu_onednn.nan.fused_steps import nan_checks
from dovetail_cpu_onednn.pair import Helper
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_cpu_onednn.reorder import in_layout, moved
from dovetail_cpu_onednn.request import CLOSED, OnednnRequest
from dovetail_cpu_onednn.shared_constants import SharedConstants, owner
from dovetail_cpu_onednn.threads import SHORT_NS

__all__ = ["Decided", "OnednnExecutable", "Placement", "Prepared"]


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


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with the kernel that runs it, the kernel's label, and the refusals of the kernels before it in the list.

    `threads` is how many threads share the node, `nanoseconds` the estimated time of one; `earlier` is what was decided about it
    in other sizes.
    """

    node: TypedNode
    kernel: OnednnKernel
    label: str
    refusals: tuple[tuple[str, Refusal], ...]
    threads: int = 1
    earlier: Decided | None = None
    nanoseconds: float = 0.0

    @property
    def in_place(self) -> Sequence[str]:
        """The values in whose memory output 0 may be written."""
        result = self.node.outputs[0] if self.node.node.outputs[0] else None
        types = dict(
            zip((*self.node.node.inputs, *self.node.node.operands), (*self.node.inputs, *self.node.operands), strict=True)
        )
        known = self.earlier.in_place if self.earlier is not None and self.earlier.implementation else None
        names = self.kernel.in_place(self.node) if known is None else known
        return [name for name in names if result is not None and types[name] == result]

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
    constants: Mapping[int, Array]
    scratchpad: int


Task = tuple[Placement, tuple[Stage, ...]]
"""A node and those of its stages whose primitives are to be made."""


class OnednnExecutable(Executable):
    """A graph with primitives for each node, weights in their layouts and a memory plan; shared by its requests.

    `threads` is how many the device may use, `shared_by` how many this plan does. `shared` has the constants of the executables
    of the same compilation, `arenas` the memory of its requests.
    """

    def __init__(
        self, graph: Graph, placements: tuple[Placement, ...], threads: int, shared: SharedConstants, arenas: Arenas
    ) -> None:
        self.arenas = arenas
        self.graph = graph
        self.threads = threads
        self.shared_by = max((p.threads for p in placements), default=1)
        self.notes = _notes(placements, threads)
        sized = graph.replace(types=_sized(graph, placements))
        takes = {p.node.name: _taken(p) for p in placements}

        def scratch(node: Node) -> Sequence[int]:
            plan = plans.get(node.name)
            if plan is None:
                return ()
            size = max((library().scratchpad(s.desc) for s in plan.stages), default=0)
            return (size, *plan.scratch) if size or plan.scratch else ()

        # The memory of a result decides between a sum in place and a binary post-op, so storage is planned before.
        storage = share_storage(sized, lambda n: takes[n.name])
        with Helper(_make, threads) as helper:
            plans = {p.node.name: _asked(p, storage, helper) for p in placements if isinstance(p.kernel, PrimitiveKernel)}
            stages = {p.node.name: _needed(p.node, plans[p.node.name], storage) for p in placements if p.node.name in plans}
            # What needs no primitives, while a second thread makes the last of them.
            self.placements = placements = tuple(_relabelled(p, plans.get(p.node.name)) for p in placements)
            self.decided = {p.node.name: _decided(p, plans.get(p.node.name), takes[p.node.name]) for p in placements}
            nodes = [p.node for p in placements]
            self.clip_checks = clip_checks(nodes, graph.constants)
            self.nan_checks, self.final_nan_checks = nan_checks(nodes, graph.outputs)
            self.checks_values = bool(self.clip_checks or self.nan_checks or self.final_nan_checks)
            continued = {p.node.name: p.continued for p in placements} if graph.states else {}
            self.memory = plan_graph(
                sized,
                lambda n: takes[n.name],
                scratch,
                ALIGNMENT,
                continues=lambda n: continued.get(n.name, {}),
                storage=None if graph.states else storage,
            )
            self.constants: Mapping[str, Array] = _LaidOut(graph)
            places = {p.node.name: p for p in placements if p.node.name in stages}
            moves = {name: [_moves(stage) for stage in stages[name]] for name in stages}
            found = {name: [_shared(places[name].node, one, shared) for one in moves[name]] for name in stages}
        missing = sum(_missing_bytes(*one) for name in stages for one in zip(moves[name], found[name], strict=True))
        memory = _ConstantMemory(missing)
        self.prepared: Mapping[str, tuple[Prepared, ...]] = {
            name: tuple(
                _prepare(places[name], *one, memory, shared) for one in zip(stages[name], moves[name], found[name], strict=True)
            )
            for name in (_giving_back(places, stages, moves, graph) if missing else stages)
        }

        self._requests: weakref.WeakSet[OnednnRequest] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

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
            self.prepared, self.constants = {}, {}
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


def _taken(placement: Placement) -> Sequence[str]:
    library().plan_threads(placement.threads)
    return placement.in_place


def _asked(placement: Placement, storage: Mapping[str, str], helper: Helper[Task]) -> NodePlan:
    """The plan of a node. The helper makes its primitives."""
    with naming_out_of_memory(placement.node.node), phase(placement.node.name, "prepare", kernel=placement.label):
        plan = _plan(placement, storage)
    stages = _needed(placement.node, plan, storage)
    if any(stage.desc.primitive is None for stage in stages):
        helper.add((placement, stages))
    return plan


def _make(task: Task) -> None:
    """Makes the primitives of a node."""
    placement, stages = task
    with naming_out_of_memory(placement.node.node), phase(placement.node.name, "prepare", what="the primitives"):
        library().plan_threads(placement.threads)
        for stage in stages:
            library().primitive(stage.desc)


def _plan(placement: Placement, storage: Mapping[str, str]) -> NodePlan:
    node, kernel = placement.node, placement.kernel
    assert isinstance(kernel, PrimitiveKernel)
    library().plan_threads(placement.threads)
    taken = storage.get(node.node.outputs[0])
    shared = bool(node.operands) and taken in [storage[name] for name in node.node.operands]
    try:
        # In layouts that it took, a kernel need not be asked which it would choose.
        return kernel.final(node, shared) if placement.earlier is None else kernel.plan(node, False, shared)
    except Refused as answer:
        raise CompileError(f"ONEDNN, node {node.node}: {answer.refusal}") from None
    except Unimplemented as error:
        raise CompileError(f"ONEDNN, node {node.node}: {error.message}") from error


def _decided(placement: Placement, plan: NodePlan | None, in_place: Sequence[str]) -> Decided:
    found = ("", False) if plan is None else (plan.name, plan.is_reference)
    return Decided(placement.kernel, placement.label, placement.refusals, *found, in_place)


def _relabelled(placement: Placement, plan: NodePlan | None) -> Placement:
    """The placement with the name of the implementation that oneDNN has for these sizes.

    Raises `CompileError` where it has only a slow one, unlike before.
    """
    earlier = placement.earlier
    if plan is None or earlier is None or plan.name == earlier.implementation:
        return placement
    if (plan.is_reference and not earlier.is_reference) or ("gemm" in plan.name and "gemm" not in earlier.implementation):
        raise CompileError(f"ONEDNN has only {plan.name} for node {placement.node.node} in these sizes")
    assert isinstance(placement.kernel, PrimitiveKernel)
    return replace(placement, label=placement.kernel.accepted(plan.name, placement.node).kernel)


def _needed(node: TypedNode, plan: NodePlan, storage: Mapping[str, str]) -> tuple[Stage, ...]:
    """The stages, without copies of operands in whose memory the result is written."""
    if all(stage.unless_shared is None for stage in plan.stages):
        return plan.stages
    shared = [storage[name] == storage[node.node.outputs[0]] for name in node.node.operands]
    return tuple(s for s in plan.stages if s.unless_shared is None or not shared[s.unless_shared])


class _LaidOut(Mapping[str, Array]):
    """The constants in the layouts of their types, each when it is first asked for: most are read by primitives alone."""

    def __init__(self, graph: Graph) -> None:
        self._given, self._types = graph.constants, graph.types
        self._known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._known:
            self._known[name] = in_layout(self._given[name], self._types[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class _ConstantMemory:
    """Memory for the constants of all primitives: one block, since systems give large blocks in large pages, which is faster."""

    def __init__(self, size: int) -> None:
        self._free = aligned(size)
        self._copy = aligned(0)

    def take(self, size: int) -> Array:
        """An aligned piece of so many bytes."""
        taken, self._free = self._free[:size], self._free[_whole(size) :]
        return taken

    def contiguous(self, array: Array) -> Array:
        """The array in C order at an address for its type, for the next step only: it is where the model file has it."""
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        if self._copy.nbytes < array.nbytes:
            self._copy = aligned(array.nbytes)
        copy = self._copy[: array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy


def _shared(node: TypedNode, moves: Sequence[Argument], shared: SharedConstants) -> dict[int, Array]:
    """The constants of a stage that other executables have brought into its layouts already."""
    found = {a.arg: shared.find(_constant(node, a), a.desc, _wanted(a), a.repack) for a in moves if a.content is None}
    return {arg: array for arg, array in found.items() if array is not None}


def _missing_bytes(moves: Sequence[Argument], shared: Mapping[int, Array]) -> int:
    return sum([_whole(library().nbytes(_wanted(a))) for a in moves if a.arg not in shared])


def _constant(node: TypedNode, argument: Argument) -> Array:
    return value_of(given(node, argument.index).value)


def _wanted(argument: Argument) -> MemoryDesc:
    return argument.wanted or argument.desc


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _moves(stage: Stage) -> Sequence[Argument]:
    """The constants that are copied into the layout that the primitive takes."""
    equal = library().equal

    def differs(a: Argument) -> bool:
        return a.content is not None or a.repack is not None or (a.wanted is not None and not equal(a.desc, a.wanted))

    return [a for a in stage.arguments if differs(a)]


def _giving_back(
    places: Mapping[str, Placement],
    stages: Mapping[str, Sequence[Stage]],
    moved: Mapping[str, Sequence[Sequence[Argument]]],
    graph: Graph,
) -> Iterator[str]:
    """The names of the nodes to prepare; when all readers of a constant have copied it, its memory is given back."""
    owners = {name: id(owner(array)) for name, array in graph.constants.items()}  # constants may be views of each other
    left: Counter[int | None] = Counter(
        owners[name] for reads in (*(n.reads for n in graph.nodes), graph.outputs) for name in reads if name in owners
    )
    for name in stages:
        yield name
        inputs = places[name].node.node.inputs
        moves = {(i, a.arg) for i, arguments in enumerate(moved[name]) for a in arguments}
        reads = [(i, a.arg, a.index) for i, s in enumerate(stages[name]) for a in s.arguments if a.place == "input"]
        in_place = {index for i, arg, index in reads if (i, arg) not in moves}
        for index in {index for _, _, index in reads} - in_place:
            memory = owners.get(inputs[index])
            left[memory] -= 1
            if memory is not None and not left[memory]:
                let_go(graph.constants[inputs[index]])


def _prepare(
    placement: Placement,
    stage: Stage,
    moves: Sequence[Argument],
    found: Mapping[int, Array],
    memory: _ConstantMemory,
    shared: SharedConstants,
) -> Prepared:
    node, lib, constants = placement.node, library(), dict(found)
    if stage.desc.primitive is not None and len(found) == len(moves):
        return Prepared(stage, stage.desc.primitive, constants, lib.scratchpad(stage.desc))
    lib.plan_threads(placement.threads)
    with naming_out_of_memory(node.node), phase(node.name, "prepare", what="constants and the primitive"):
        for argument in moves:
            if argument.arg not in constants:
                constants[argument.arg] = _brought(node, argument, memory, shared)
        return Prepared(stage, lib.primitive(stage.desc), constants, lib.scratchpad(stage.desc))


def _brought(node: TypedNode, argument: Argument, memory: _ConstantMemory, shared: SharedConstants) -> Array:
    """A constant in the layout that the primitive takes."""
    wanted = _wanted(argument)
    array = _constant(node, argument) if argument.content is None else argument.content()
    packed = array if argument.repack is None else argument.repack(array)
    copy = moved(memory.contiguous(packed), argument.desc, wanted, memory.take(library().nbytes(wanted)))
    if argument.content is None:
        shared.add(array, argument.desc, wanted, copy, argument.repack)
    return copy
