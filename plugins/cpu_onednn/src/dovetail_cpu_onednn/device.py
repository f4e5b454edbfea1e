"""The device ONEDNN: chooses kernels and compiles graphs."""

import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

from dovetail.device import (
    PLAIN,
    AbstractOperator,
    Accepted,
    Arenas,
    Choice,
    Device,
    DeviceInfo,
    DeviceUnavailable,
    DType,
    Graph,
    KernelTable,
    LayerConfig,
    Node,
    OutOfMemory,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    Unavailable,
    choose,
)
from dovetail.errors import CompileError
from dovetail.lru import LruCache
from dovetail_cpu_onednn.choices import Choices, Known, Work
from dovetail_cpu_onednn.elementwise import ElementwiseKernel
from dovetail_cpu_onednn.executable import OnednnExecutable
from dovetail_cpu_onednn.kernel import AcceptedPlan, NodePlan, OnednnKernel, PrimitiveKernel
from dovetail_cpu_onednn.library import default_threads, library, load
from dovetail_cpu_onednn.memory import naming_out_of_memory, refused
from dovetail_cpu_onednn.options import Options
from dovetail_cpu_onednn.placement import Decided, Placement, Seen
from dovetail_cpu_onednn.reference import ReferenceKernel
from dovetail_cpu_onednn.repeated import key_of
from dovetail_cpu_onednn.shared_constants import SharedConstants
from dovetail_cpu_onednn.threads import sharers, single_thread_ns, worth_sharing
from dovetail_cpu_onednn.view import ViewKernel

if TYPE_CHECKING:
    from dovetail_cpu_onednn.batch_parts import InBatch

__all__ = ["OnednnDevice", "infos", "place"]

_TABLE: KernelTable[OnednnKernel] = KernelTable(
    "dovetail_cpu_onednn.kernels", defined_in=("dovetail", "dovetail_cpu_onednn", "dovetail_ops_onnx")
)

_FOR_EVERY_OPERATOR: tuple[OnednnKernel, ...] = (ViewKernel(), ElementwiseKernel(), ReferenceKernel())
"""The kernels that are tried after those of an operator's stem."""

_Earlier = tuple[Mapping[str, Decided], "weakref.ref[OnednnExecutable]"]
"""The decisions about the nodes of a graph in other sizes, and its executable."""

ROOM = 256
"""Compiled graphs whose choices are kept for the same nodes in other sizes."""


def infos() -> Sequence[DeviceInfo] | Unavailable:
    """The device of this machine, or the reason why it is unavailable."""
    found = load()
    if isinstance(found, Unavailable):
        return found
    version = ".".join(map(str, found.version))
    details: dict[str, str | int] = {"onednn": version, "library": found.path, "threads": default_threads()}
    details["instructions"] = found.instructions
    return [DeviceInfo("ONEDNN", "ONEDNN", "CPU", f"oneDNN {version}", priority=20, details=details)]


class OnednnDevice(Device):
    """Runs each node by the first kernel that accepts it.

    These are the kernels of its stem, the host kernels that it provides, elementwise primitives, and at last its reference.
    """

    takes_any_address = True
    compiles_again = True
    _hurries = True
    _latest: "Callable[[], OnednnExecutable | None]" = staticmethod(lambda: None)

    def __init__(self, info: DeviceInfo, options: Mapping[str, Any]) -> None:
        self.info = info
        read = Options.read(options)
        _require(str(read.LIBRARY))
        self._threads = read.INFERENCE_NUM_THREADS or default_threads()
        self._precision = _precision(read, "f32")
        self._constants, self._arenas, self._choices = SharedConstants(), Arenas(), Choices(_work)
        self._earlier: LruCache[tuple[Node, ...], _Earlier] = LruCache(ROOM)

    def configured(self, options: Mapping[str, Any]) -> "OnednnDevice":
        """The device with other threads and in another precision.

        Raises `UsageError` for options, `DeviceUnavailable` for a second library and for what the CPU lacks.
        """
        read, found = Options.read(options), copy(self)
        _require(str(read.LIBRARY))
        found._threads = read.INFERENCE_NUM_THREADS or self._threads
        found._precision = _precision(read, self._precision)
        found._constants, found._arenas, found._choices = SharedConstants(), Arenas(), Choices(_work)
        found._earlier = LruCache(ROOM)
        return found

    def for_streams(self, count: int | None) -> "OnednnDevice":
        """The device with its threads divided among streams; by itself it takes a stream for each.

        Streams of one thread need least CPU time, because no thread waits at barriers: ResNet-50 and MiniLM give 1.2 and 1.5
        times the rows of one stream of two threads, and on 16 cores 1.5 and 1.3 times those of streams of four. On cores that
        other programs use too, one stream may give more: a system wakes threads that wait first.
        """
        found = copy(self)
        found.streams = count or self._threads
        found._threads = max(1, self._threads // found.streams)
        found._earlier = LruCache(ROOM)
        return found

    def afresh(self) -> "OnednnDevice":
        """The device for plans whose nodes have primitives of their own for each batch."""
        found = copy(self)
        found._hurries = False
        return found

    def lower(self, graph: Graph) -> Graph:
        """The graph in the precision that `INFERENCE_PRECISION_HINT` asks for."""
        if self._precision != "bf16":
            return graph
        from dovetail_cpu_onednn.precision import lower  # here, because most models keep their precision

        return lower(graph, self._runs_by_primitive)

    def _runs_by_primitive(self, node: TypedNode) -> bool:
        """Whether a fast primitive runs it: windows copied into a matrix gain nothing by bfloat16, and float32 may need none."""
        choice = self._choose(node)
        if isinstance(choice, Refusal) or not isinstance(choice.kernel, PrimitiveKernel):
            return False
        return not (isinstance(choice.answer, AcceptedPlan) and choice.answer.plan.is_slow)

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Everything with static shapes and a reference, unless a post-op does not fit."""
        with naming_out_of_memory(node.node):
            choice = self._choose(node)
        return choice if isinstance(choice, Refusal) else Accepted(choice.answer.kernel, choice.kernel.from_operator)

    def accepts(self, node: TypedNode) -> Accepted | Refusal:
        """As `supports`. oneDNN is not asked about a node that its reference would run in any case."""
        found = _FOR_EVERY_OPERATOR[-1].supports(node)
        return found if node.is_static and isinstance(found, Accepted) else self.supports(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts that the primitive chooses; those in which there is a fast one for kernels that take several."""
        try:  # as `naming_out_of_memory`, in half the time
            choice = self._choose(node)
            return (LayerConfig.uniform(node, PLAIN),) if isinstance(choice, Refusal) else choice.kernel.configurations(node)
        except (MemoryError, OutOfMemory) as error:
            raise refused(error, node.node) from error

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> OnednnExecutable:
        """Choose kernels, plan memory, prepare weights.

        Raises `CompileError` naming a refused node, `UsageError` for options, `OutOfMemory`.
        """
        asked = Options.read(options).INFERENCE_NUM_THREADS
        threads = asked if asked is not None and self.streams == 1 else self._threads
        own, earlier = graph.nodes, self._earlier.get(graph.nodes)
        before = None if earlier is None else earlier[1]()
        known = {} if before is None else before.seen
        chosen: dict[str, Known] = {}
        seen, groups = _seen_again(graph, before) if before is not None else (self._seen_first(graph, chosen), {})
        nodes, works = [one.node for one in seen], [one.work for one in seen]
        graph = graph.replace(nodes=tuple([one.node for one in nodes]))
        used = worth_sharing(works, threads)
        # This also refuses, in a forked process, threads that do not exist there.
        library().set_threads(used)
        threads_of = [(1 if used == 1 else sharers(*work, used), work[0]) for work in works]
        with naming_out_of_memory():
            executable = None
            if earlier is not None:
                unchanged = {one.given.node.name for one in seen if known.get(one.given.node.name) is one}
                executable = self._again((earlier[0], before), graph, nodes, threads_of, unchanged, groups, threads)
            if executable is None:
                plans: dict[str, NodePlan] = {}
                choose = partial(self._taken, plans, chosen)
                placements = tuple([place(node, *one, choose) for node, one in zip(nodes, threads_of, strict=True)])
                if earlier is not None:
                    self._require_layouts(placements, earlier[0])
                given = graph, placements, threads, self._constants, self._arenas
                executable = OnednnExecutable(*given, plans=plans, others=self._others())
        executable.seen = {one.given.node.name: one for one in seen}
        if before is not None:
            executable.kinds = {name: kind for name, kind in before.kinds.items() if name in groups}
        self._latest = weakref.ref(executable)
        self._earlier.put(own, (executable.decided, self._latest))
        return executable

    def _others(self) -> "Mapping[str, tuple[InBatch, ...]]":
        """The primitives of the graph that was compiled last, mostly the model after its passes have run for other sizes."""
        latest = self._latest()
        return {} if latest is None else latest.batches

    def _again(
        self,
        earlier: tuple[Mapping[str, Decided], OnednnExecutable | None],
        graph: Graph,
        nodes: Sequence[TypedNode],
        counts: Sequence[tuple[int, float]],
        unchanged: Container[str],
        groups: Mapping[str, object],
        threads: int,
    ) -> OnednnExecutable | None:
        """The graph by what was decided for its nodes in other sizes; None where other kernels are needed.

        Raises `CompileError` where no kernel, chosen anew, takes a node in the layouts of its types.
        """
        decided, executable = earlier
        known = {} if executable is None else {p.node.name: p for p in executable.placements if p.node.name in unchanged}
        try:
            placements, alike = [], dict[object, Placement]()
            for node, one in zip(nodes, counts, strict=True):
                try:
                    name = node.node.name
                    found = _placed(node, *one, decided, known.get(name), groups.get(name), alike)
                except CompileError:  # of these sizes another kernel may take the node, and the others stay as they are
                    if not self._takes_by_another(node):
                        raise
                    found = place(node, *one, self._chosen)
                placements.append(found)
            given = graph, tuple(placements), threads, self._constants, self._arenas, executable
            return OnednnExecutable(*given, hurries=self._hurries, others=self._others())
        except CompileError:
            for node, one in zip(nodes, counts, strict=True):
                if not self._takes(node, *one, decided):
                    raise
        return None

    def _takes(self, node: TypedNode, threads: int, nanoseconds: float, decided: Mapping[str, Decided]) -> bool:
        """Whether the kernel of other sizes takes the node in the layouts of its types, or one that is chosen anew.

        The first is asked because configurations do not list the layouts of reorders and of views that passes made.
        """
        with suppress(CompileError):
            _placed(node, threads, nanoseconds, decided, None)
            return True
        return self._takes_by_another(node)

    def _require_layouts(self, placements: Iterable[Placement], decided: Mapping[str, Decided]) -> None:
        """Raise `CompileError` where another kernel than in other sizes does not take a node in the layouts of that kernel."""
        for one in placements:
            if one.kernel != decided[one.node.node.name].kernel and not self._takes_by_another(one.node):
                raise CompileError(f"ONEDNN: the kernel {one.kernel.name!r} does not take node {one.node.node} in its layouts")

    def _takes_by_another(self, node: TypedNode) -> bool:
        """Whether a kernel that is chosen anew takes the node in the layouts of its types."""
        configs = (c for c in self.configurations(_plain(node)) if c.fits(node))
        return any(c.holds is None or c.holds() for c in configs)

    def _choose(self, node: TypedNode) -> Choice[OnednnKernel] | Refusal:
        if not node.is_static:
            return Refusal(Reason.DYNAMIC)
        known = self._choices.get(node)
        return self._chosen(node, 1 if self._threads == 1 else sharers(*known.work, self._threads), known)

    def _chosen(self, node: TypedNode, threads: int, known: Known | None = None) -> Choice[OnednnKernel] | Refusal:
        library().plan_threads(threads)  # what follows a choice asks oneDNN too
        known = known or self._choices.get(node)
        if known.found is None or known.found[0] != threads:
            known.found = threads, self._chosen_anew(node, threads)
        return known.found[1]

    def _chosen_anew(self, node: TypedNode, threads: int) -> Choice[OnednnKernel] | Refusal:
        found = choose(_kernels_of(node.op), node)
        if self._threads > 1 and node.outputs[0].dtype is DType.FLOAT32 and _builds_on_product(found):
            from dovetail_cpu_onednn import first_product  # here, because most models need none

            first_product.begin()
        return found

    def _seen_first(self, graph: Graph, chosen: dict[str, Known]) -> list[Seen]:
        """The nodes of a graph, without others before; `chosen` gets by name what is known of each in plain types."""
        found = []
        for node in graph.nodes:
            given = TypedNode.of(node, graph)
            viewed = _viewed(given)
            known = chosen[node.name] = self._choices.take(_plain(viewed))
            found.append(Seen(given, viewed, known.work))
        return found

    def _taken(
        self, plans: dict[str, NodePlan], known: Mapping[str, Known], node: TypedNode, threads: int
    ) -> Choice[OnednnKernel] | Refusal:
        """The choice for compilation, which asks last: its plan goes to `plans` and is not kept."""
        choice = self._chosen(node, threads, known.get(node.name))
        if isinstance(choice, Choice) and isinstance(choice.answer, AcceptedPlan):
            plans[node.name] = choice.answer.plan
        return choice


def _require(path: str) -> None:
    found = load(path)
    if isinstance(found, Unavailable):
        raise DeviceUnavailable(f"ONEDNN: {found.reason}", hint=found.hint)


def _precision(options: Options, default: str) -> str:
    found = options.INFERENCE_PRECISION_HINT or default
    if found == "bf16" and not library().has_bfloat16:
        raise DeviceUnavailable(
            "ONEDNN: INFERENCE_PRECISION_HINT is 'bf16', and this CPU has no instructions for bfloat16 (AVX512_BF16 or AMX), or "
            "ONEDNN_MAX_CPU_ISA forbids them",
            hint="let INFERENCE_PRECISION_HINT be 'f32'",
        )
    return found


def _choose(node: TypedNode, threads: int) -> Choice[OnednnKernel] | Refusal:
    # Implementations are chosen for the number of threads that the asking thread may use.
    library().plan_threads(threads)
    return choose(_kernels_of(node.op), node)


def _builds_on_product(choice: Choice[OnednnKernel] | Refusal) -> bool:
    """Whether primitives multiply by oneDNN's general product: references that are accepted all the same, of recurrent layers."""
    return isinstance(choice, Choice) and isinstance(choice.answer, AcceptedPlan) and choice.answer.plan.is_reference


def _kernels_of(op: AbstractOperator) -> Sequence[OnednnKernel]:
    return (*_TABLE[op], *(_hosted(op) if op.kernels else ()), *_FOR_EVERY_OPERATOR)


def _hosted(op: AbstractOperator) -> Sequence[OnednnKernel]:
    from dovetail_cpu_onednn.hosting import HostedKernel  # here, because few operators have kernels for devices

    return HostedKernel.of(op)


def _seen_again(graph: Graph, before: OnednnExecutable) -> tuple[list[Seen], Mapping[str, object]]:
    """The nodes of a graph, those of `before` where the types are as they were; by name the groups of those that are alike."""
    found, groups, firsts = [], dict[str, object](), dict[tuple[int, ...] | None, Seen]()
    seen, kinds = before.seen, before.kinds
    for node in graph.nodes:
        given, known, kind = TypedNode.of(node, graph), seen[node.name], kinds.get(node.name)
        key = None if kind is None else key_of(kind, given, known.given)
        found.append(one := _seen(given, known, firsts.get(key)))
        if key is not None:
            groups[node.name] = firsts.setdefault(key, one)
    return found, groups


def _seen(given: TypedNode, known: Seen, alike: Seen | None) -> Seen:
    """`known`, where the types are as they were; `alike` is what was seen of a node of the same group."""
    if _is_same(known.given, given):
        return known
    if alike is None:
        node = _viewed(given)
        return Seen(given, node, _work(node))
    op, own = alike.node.op, given.node
    if op is alike.given.node.op:
        return Seen(given, given, alike.work)
    viewed = Node(own.name, op, own.inputs, own.outputs, own.post_ops, own.origins, own.affinity)
    return Seen(given, TypedNode(viewed, given.inputs, given.outputs, given.operands), alike.work)


def _viewed(node: TypedNode) -> TypedNode:
    """The node as a view, if one of its kernels sees that it moves nothing."""
    for kernel in _TABLE[node.op]:
        if (op := kernel.as_view(node)) is not None:
            return replace(node, node=replace(node.node, op=op))
    return node


def _work(node: TypedNode) -> Work:
    kernels = _TABLE[node.op]
    return single_thread_ns(node), max([kernel.barriers(node) for kernel in kernels]) if kernels else 1


Choose = Callable[[TypedNode, int], Choice[OnednnKernel] | Refusal]


def place(node: TypedNode, threads: int, nanoseconds: float = 0.0, choose: Choose = _choose) -> Placement:
    """The node of static shapes with the kernel that `choose` gives, for so many threads; one takes so many nanoseconds.

    Raises `CompileError` when the device refuses it.
    """
    # The decision is made on plain types, as it was while planning; only the plan depends on layouts.
    plain = _plain(node)
    choice = choose(plain, threads)
    if isinstance(choice, Refusal):
        raise CompileError(f"ONEDNN refuses node {node.node}: {choice}")
    refusals = (*choice.refusals, *_reservations(choice.kernel, plain))
    return Placement(node, choice.kernel, choice.answer.kernel, refusals, threads, nanoseconds=nanoseconds)


def place_again(node: TypedNode, threads: int, nanoseconds: float, earlier: Decided) -> Placement:
    """The node with the kernel that took it in other sizes. Raises `CompileError` when that refuses it.

    The kernels before it are asked again: one of them may take these sizes, and reasons name sizes.
    """
    library().plan_threads(threads)
    plain = node if earlier.implementation and not earlier.refusals else _plain(node)
    refusals: list[tuple[str, Refusal]] = []
    for kernel in _kernels_of(node.op) if earlier.refusals else (earlier.kernel,):
        if kernel == earlier.kernel:
            if not kernel.takes_again(node if earlier.implementation else plain):
                break
            found = (*refusals, *_reservations(kernel, plain))
            return Placement(node, kernel, earlier.label, found, threads, earlier, nanoseconds)
        answer = kernel.supports(plain)
        if isinstance(answer, Accepted):
            break
        refusals.append((kernel.name, answer))
    raise CompileError(f"ONEDNN: the kernel {earlier.kernel.name!r} is not for node {node.node} in these sizes")


def _reservations(kernel: OnednnKernel, node: TypedNode) -> Iterator[tuple[str, Refusal]]:
    """Why a kernel takes the node in some of its configurations only."""
    reservation = kernel.reservation(node)
    if reservation is not None:
        yield kernel.name, reservation


def _placed(
    node: TypedNode,
    threads: int,
    nanoseconds: float,
    decided: Mapping[str, Decided],
    before: Placement | None,
    group: object = None,
    alike: MutableMapping[object, Placement] | None = None,
) -> Placement:
    """As `place_again`; `before`, where the types are as they were, if it has so many threads. `alike` has one of each group."""
    if before is not None and before.threads == threads:
        return before
    earlier, first = decided[node.node.name], alike.get(group) if alike else None
    if first is not None and first.earlier is not None and _is_decided_alike(earlier, first.earlier):
        return Placement(node, earlier.kernel, first.label, first.refusals, threads, earlier, nanoseconds, group)
    placed = place_again(node, threads, nanoseconds, earlier)
    if alike is None or group is None or first is not None:
        return placed
    alike[group] = placed = replace(placed, group=group)
    return placed


def _is_decided_alike(one: Decided, other: Decided) -> bool:
    return (
        one.kernel is other.kernel
        and one.label == other.label
        and one.implementation == other.implementation
        and one.refusals == other.refusals
    )


def _is_same(one: TypedNode, other: TypedNode) -> bool:
    """Whether two nodes of one name have the same types and constants."""
    return (
        one.node is other.node
        and _are_same(one.inputs, other.inputs)
        and _are_same(one.outputs, other.outputs)
        and _are_same(one.operands, other.operands)
    )


def _are_same(types: Sequence[TensorType | None], others: Sequence[TensorType | None]) -> bool:
    """Mostly they are the same objects: see the pass `take_over`."""
    if all(map(is_, types, others)):
        return True
    pairs = zip(types, others, strict=True)
    return types == others and all(a is b or (a is not None and b is not None and a.value is b.value) for a, b in pairs)


def _plain(node: TypedNode) -> TypedNode:
    for t in (*node.inputs, *node.outputs, *node.operands):
        if t is not None and t.layout is not PLAIN:
            return TypedNode(
                node.node,
                tuple([t and t.with_layout(PLAIN) for t in node.inputs]),
                tuple([t.with_layout(PLAIN) for t in node.outputs]),
                tuple([t.with_layout(PLAIN) for t in node.operands]),
            )
    return node
