"""A compiled graph, and its requests: one arena each, and a flat tuple of bound executions."""

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.device import (
    PLAIN,
    DType,
    Executable,
    ExecutableRequest,
    Graph,
    Node,
    NodeReport,
    OutOfMemory,
    Refusal,
    Reorder,
    TensorType,
    TypedNode,
    plan_graph,
    share_storage,
)
from dovetail.errors import CompileError, DovetailError, InferError
from dovetail_cpu_onednn.binding import Arg, Launch, Memory, MemoryDesc, Primitive, Stream, Unimplemented
from dovetail_cpu_onednn.bound import Array, BoundKernel, Call, number, stand_in
from dovetail_cpu_onednn.doubts import has_no_nan, is_doubtful, looks
from dovetail_cpu_onednn.kernel import Argument, OnednnKernel, PrimitiveKernel, Recipe, Refused, Stage, given, value_of
from dovetail_cpu_onednn.layouts import describe, in_whole_blocks, padded_type, plain
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import ALIGNMENT, aligned, naming, refused
from dovetail_cpu_onednn.ranges import is_usual, watched

__all__ = ["OnednnExecutable", "Placement"]

CLOSED = "ONEDNN: the compiled model or the request was closed"


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with the kernel that runs it, what that is called, and why those before it in the list do not."""

    node: TypedNode
    kernel: OnednnKernel
    label: str
    refusals: tuple[tuple[str, Refusal], ...]

    @property
    def in_place(self) -> Sequence[str]:
        """The values whose memory output 0 may take over."""
        result = self.node.outputs[0] if self.node.node.outputs[0] else None
        types = dict(
            zip((*self.node.node.inputs, *self.node.node.operands), (*self.node.inputs, *self.node.operands), strict=True)
        )
        return [name for name in self.kernel.in_place(self.node) if result is not None and types[name] == result]

    @property
    def report(self) -> NodeReport:
        """What the plan says of the node."""
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


class OnednnExecutable(Executable):
    """A graph with primitives for each node, weights in their layouts and a memory plan; shared by its requests."""

    def __init__(self, graph: Graph, placements: tuple[Placement, ...], threads: int) -> None:
        self.graph = graph
        self.threads = threads
        self.placements = placements
        self.reports = tuple(p.report for p in placements)
        sized = graph.replace(types=_sized(graph))
        takes = {p.node.name: p.in_place for p in placements}
        recipes: dict[str, Recipe] = {}

        def scratch(node: Node) -> Sequence[int]:
            recipe = recipes.get(node.name)
            if recipe is None:
                return ()
            size = max((library().scratchpad(s.desc) for s in recipe.stages), default=0)
            return (size, *recipe.scratch) if size or recipe.scratch else ()

        # In which memory a result lies decides between a sum in place and a binary post-op, so there is a plan before.
        storage = share_storage(sized, lambda n: takes[n.name])
        for p in placements:
            if isinstance(p.kernel, PrimitiveKernel):
                with naming(p.node.node):
                    recipes[p.node.name] = _recipe(p, storage)
        nodes = [p.node for p in placements]
        self.watched = watched(nodes, graph.constants)
        self.looks, self.last_looks = looks(nodes, graph.outputs)
        self.memory = plan_graph(sized, lambda n: takes[n.name], scratch, ALIGNMENT)
        self.constants = {n: _constant(array, graph, n) for n, array in graph.constants.items()}
        stages = {
            p.node.name: tuple(s for s in recipes[p.node.name].stages if _needed(p.node, s, storage))
            for p in placements
            if p.node.name in recipes
        }
        room = _Room(_room_for(s for of_node in stages.values() for s in of_node))
        self.prepared = {
            p.node.name: tuple(_prepare(p.node, s, room) for s in stages[p.node.name])
            for p in placements
            if p.node.name in stages
        }

        self._requests: weakref.WeakSet[OnednnRequest] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def create_request(self) -> "OnednnRequest":
        """A request with an arena of its own. Raises `OutOfMemory`, and `InferError` after `close`."""
        with naming():
            request = OnednnRequest(self)
        with self._lock:
            if not self._is_closed:
                self._requests.add(request)
                return request
        raise InferError(CLOSED)

    def held(self) -> tuple[Mapping[str, tuple[Prepared, ...]], Mapping[str, Array]]:
        """What is prepared for each node, and the constants. Raises `InferError` after `close`."""
        with self._lock:
            if self._is_closed:
                raise InferError(CLOSED)
            return self.prepared, self.constants

    def close(self) -> None:
        """Let go of primitives and constants, and close all requests; a run in progress ends with what it holds."""
        with self._lock:
            self._is_closed = True
            requests, self._requests = list(self._requests), weakref.WeakSet()
            # New dictionaries: a run in progress reads the old ones.
            self.prepared, self.constants = {}, {}
        for request in requests:
            request.close()


def _sized(graph: Graph) -> Mapping[str, TensorType]:
    """The types with the channels that the plan has to count: whole blocks of them, also where a reorder writes past the end."""
    found = {name: padded_type(t) if t.is_static else t for name, t in graph.types.items()}
    for node in graph.nodes:
        if isinstance(node.op, Reorder):
            found[node.outputs[0]] = in_whole_blocks(graph.types[node.inputs[0]], found[node.outputs[0]])[1]
    return found


def _recipe(placement: Placement, storage: Mapping[str, str]) -> Recipe:
    node, kernel = placement.node, placement.kernel
    assert isinstance(kernel, PrimitiveKernel)
    taken = storage.get(node.node.outputs[0])
    shared = bool(node.operands) and taken in [storage[name] for name in node.node.operands]
    try:
        return kernel.final(node, shared)
    except Refused as answer:
        raise CompileError(f"ONEDNN, node {node.node}: {answer.refusal}") from None
    except Unimplemented as error:
        raise CompileError(f"ONEDNN, node {node.node}: {error.message}") from error


def _needed(node: TypedNode, stage: Stage, storage: Mapping[str, str]) -> bool:
    if stage.unless_shared is None:
        return True
    return storage[node.node.operands[stage.unless_shared]] != storage[node.node.outputs[0]]


def _constant(array: Array, graph: Graph, name: str) -> Array:
    """A constant as it is to lie in memory."""
    found, tensor = np.ascontiguousarray(array).reshape(array.shape), graph.types[name]
    if tensor.layout == PLAIN:
        return found
    if tensor.dtype is not DType.FLOAT32:
        return np.ascontiguousarray(found.transpose(tensor.order))
    moved = describe(tensor)
    return _moved(found, plain(found.shape), moved, aligned(library().nbytes(moved)))


def _moved(array: Array, src: MemoryDesc, dst: MemoryDesc, memory: Array) -> Array:
    """The memory, with a constant in another layout written to it."""
    lib = library()
    args = ((Arg.SRC, src, array.ctypes.data), (Arg.DST, dst, memory.ctypes.data))
    lib.execute(lib.describe_reorder(src, dst), args)
    return memory


class _Room:
    """Memory for the constants of all primitives: one block, since systems give large blocks in large pages, which is faster."""

    def __init__(self, size: int) -> None:
        self._free = aligned(size)

    def take(self, size: int) -> Array:
        """An aligned piece of so many bytes."""
        taken, self._free = self._free[:size], self._free[_whole(size) :]
        return taken


def _room_for(stages: Iterable[Stage]) -> int:
    return sum(_whole(library().nbytes(a.wanted or a.desc)) for stage in stages for a in _moves(stage))


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _moves(stage: Stage) -> Sequence[Argument]:
    """The constants that the primitive takes from memory of its own."""
    lib = library()
    return [a for a in stage.arguments if a.content is not None or (a.wanted is not None and not lib.equal(a.desc, a.wanted))]


def _prepare(node: TypedNode, stage: Stage, room: _Room) -> Prepared:
    lib = library()
    constants = {}
    with naming(node.node):
        for argument in _moves(stage):
            array = value_of(given(node, argument.index).value) if argument.content is None else argument.content()
            wanted = argument.wanted or argument.desc
            constants[argument.arg] = _moved(np.ascontiguousarray(array), argument.desc, wanted, room.take(lib.nbytes(wanted)))
        return Prepared(stage, lib.primitive(stage.desc), constants, lib.scratchpad(stage.desc))


class OnednnRequest(ExecutableRequest):
    """One arena, and the executions bound to it. `strict`: nodes that may make NaN of infinities run as references."""

    def __init__(self, executable: OnednnExecutable, strict: bool = False) -> None:
        binder = _Binder(executable, strict)
        self._executable = executable
        self._strict: OnednnRequest | None = None
        self._arena = binder.arena
        self._bound: _Bound | None = self._bind(binder)

    @staticmethod
    def _bind(binder: "_Binder") -> "_Bound":
        executable = binder.executable
        graph = executable.graph
        bound = [(launch, p.node.node) for p in executable.placements for launch in binder.launches(p)]
        if bound:
            bound += [(launch, bound[-1][1]) for launch in binder.looks(executable.last_looks)]
        outputs = tuple(binder.array(name) for name in graph.outputs)
        # What only primitives read need not be copied: they get the caller's address at every run.
        borrowed = {name: binder.readers.get(name, []) for name in graph.inputs if name not in binder.arrays}
        return _Bound(
            calls=tuple(launch.call if isinstance(launch, Launch) else launch for launch, _ in bound),
            nodes=tuple(node for _, node in bound),
            in_python=any(not isinstance(launch, Launch) for launch, _ in bound),
            outputs=outputs,
            borrowed=tuple((i, tuple(borrowed[n])) for i, n in enumerate(graph.inputs) if n in borrowed),
            copied=tuple((i, binder.array(n)) for i, n in enumerate(graph.inputs) if n not in borrowed),
            binder=binder,
            kept=[launch for launch, _ in bound],
        )

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Copy the inputs in, execute every primitive.

        Raises `InferError` naming the node in which something failed, or because the request is closed; `OutOfMemory`.
        """
        bound = self._bound
        if bound is None:
            raise InferError(CLOSED)
        try:
            self._run(bound, inputs)
            return self._run_strictly(inputs) if bound.binder.doubts else bound.outputs
        except MemoryError as error:
            raise refused(error) from error

    def _run(self, bound: "_Bound", inputs: Sequence[Array]) -> None:
        # The number of threads belongs to the calling thread, whichever that is.
        lib = library()
        lib.set_threads(self._executable.threads)
        bound.binder.unusual.clear()
        for index, staging in bound.copied:
            np.copyto(staging, inputs[index])
        for index, memories in bound.borrowed:
            for memory in memories:
                lib.set_address(memory, inputs[index].ctypes.data)
        bound.binder.doubts.clear()
        if not bound.in_python:
            self._call_all(bound)
        else:
            # The state belongs to the thread and takes a while to set, so it is set once a run. NaN is a result like others.
            with np.errstate(all="ignore"):
                self._call_all(bound)

    def _run_strictly(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The run again, in other memory: the first may have made NaN of infinities."""
        strict = self._strict
        if strict is None:
            strict = self._strict = OnednnRequest(self._executable, strict=True)
        return strict.run(inputs)

    def _call_all(self, bound: "_Bound") -> None:
        step = 0
        try:
            for step, call in enumerate(bound.calls):  # noqa: B007  # the step is what an error names
                status = call()
                if status:
                    library().check(status, "primitive_execute")
        except Exception as error:
            raise self._located(error, bound.nodes[step]) from error

    def close(self) -> None:
        """Let go of the arena and of everything bound to it, at once or at the end of the run in progress."""
        self._bound = self._strict = None
        self._arena = np.empty(0, np.uint8)

    def _located(self, error: Exception, node: Node) -> InferError:
        if isinstance(error, MemoryError | OutOfMemory):
            return refused(error, node)
        if isinstance(error, DovetailError):
            return InferError(f"ONEDNN, node {node}: {error.message}", hint=error.hint)
        return InferError(f"ONEDNN, node {node}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class _Bound:
    """All that a run uses. Whoever holds it may run: what primitives read and write lives as long.

    `borrowed` are inputs that only primitives read, which get the caller's address; `copied` those that have a place of their
    own. `kept` are the launches, whose calls hold bare addresses.
    """

    calls: tuple[Call, ...]
    nodes: tuple[Node, ...]
    in_python: bool
    outputs: tuple[Array, ...]
    borrowed: tuple[tuple[int, tuple[Memory, ...]], ...]
    copied: tuple[tuple[int, Array], ...]
    binder: "_Binder"
    kept: Sequence[object]


class _Binder:
    """The values of one request in its arena, as arrays and as memory objects.

    For each block of memory, `readers` has the memory objects there; `arrays` are the blocks that are used as arrays. `unusual`
    are the nodes whose clip met unusual numbers in this run, `doubts` the values in which NaN was found that may be none.
    """

    def __init__(self, executable: OnednnExecutable, strict: bool) -> None:
        self.executable = executable
        # Kept here, because `close` takes them from the executable.
        self._prepared, self._constants = executable.held()
        self._is_strict = strict
        self._types = executable.graph.types
        self.arena = aligned(executable.memory.peak)
        self._stream: Stream = library().stream()
        self.readers: dict[str, list[Memory]] = {}
        self.arrays: set[str] = set()
        self.unusual: list[str] = []
        self.doubts: list[str] = []

    def launches(self, placement: Placement) -> Iterator[Launch | Call]:
        """All that a node does, in order."""
        yield from self.looks(self.executable.looks.get(placement.node.name, ()))
        prepared = self._prepared.get(placement.node.name)
        if prepared is not None and self._is_strict and is_doubtful(placement.node):
            yield stand_in(placement.node, self.array)
        elif prepared is not None and (checks := self._checks(placement)):
            yield self._guarded(placement, checks, [self._launch(placement.node, one) for one in prepared])
        elif prepared is not None:
            for one in prepared:
                yield self._number(placement.node, one) if one.stage.is_number else self._launch(placement.node, one)
        elif isinstance(placement.kernel, BoundKernel):
            yield from placement.kernel.bind(placement.node, self.array)

    def looks(self, names: Sequence[str]) -> Iterator[Launch]:
        """Calls that look for NaN in values."""
        for name in () if self._is_strict else names:
            yield self._look(name, has_no_nan(self.array(name), self._stream))

    def _look(self, name: str, has_no_nan: Callable[[], bool]) -> Launch:
        def look() -> int:
            if not has_no_nan():
                self.doubts.append(name)
            return 0

        return Launch(look, ())

    def array(self, name: str) -> Array:
        """A value as it lies in memory."""
        plan, found = self.executable.memory, self._types[name]
        root, dims = plan.storage[name], found.memory_dims
        if root in self._constants:
            return self._constants[root].view(found.dtype.numpy).reshape(dims)
        self.arrays.add(root)
        start = plan.offsets[root]
        return self.arena[start : start + math.prod(dims) * found.dtype.itemsize].view(found.dtype.numpy).reshape(dims)

    def _address(self, name: str) -> int:
        root = self.executable.memory.storage[name]
        if root in self._constants:
            return int(self._constants[root].ctypes.data)
        return int(self.arena.ctypes.data) + self.executable.memory.offsets[root]

    def _launch(self, node: TypedNode, prepared: Prepared) -> Launch:
        lib = library()
        bound = [(a.arg, self._memory(node, a, prepared)) for a in prepared.stage.arguments]
        if prepared.scratchpad:
            offset = self.executable.memory.offsets[f"scratch:{node.name}:0"]
            address = int(self.arena.ctypes.data) + offset
            bound.append((Arg.SCRATCHPAD, lib.memory(lib.scratchpad_md(prepared.stage.desc), address)))
        return lib.launch(prepared.primitive, self._stream, bound)

    def _memory(self, node: TypedNode, argument: Argument, prepared: Prepared) -> Memory:
        if argument.arg in prepared.constants:
            return library().memory(argument.wanted or argument.desc, int(prepared.constants[argument.arg].ctypes.data))
        if argument.place == "scratch":
            offset = self.executable.memory.offsets[f"scratch:{node.name}:{argument.index + 1}"]
            return library().memory(argument.desc, int(self.arena.ctypes.data) + offset)
        names = {"input": node.node.inputs, "output": node.node.outputs, "operand": node.node.operands}[argument.place]
        name = names[argument.index]
        memory = library().memory(argument.desc, self._address(name))
        self.readers.setdefault(self.executable.memory.storage[name], []).append(memory)
        return memory

    def _number(self, node: TypedNode, prepared: Prepared) -> Call:
        """The copy of a single number: 0.1 us so, 2 us by a primitive."""
        src, dst = prepared.stage.arguments
        start = self.executable.memory.offsets[f"scratch:{node.name}:{dst.index + 1}"]
        source, copy = number(self.array(node.node.inputs[src.index])), number(self.arena[start : start + 4].view(np.int32))

        def run() -> None:
            copy[0] = source[0]

        return run

    def _checks(self, placement: Placement) -> list[Callable[[], bool]]:
        """What must be true of the data for the primitives to be right."""
        node, found = placement.node, []
        if placement.kernel.is_guarded(node):
            found.append(placement.kernel.safety(node, self.array, self._stream))
        if node.name in self.executable.watched:
            found.append(self._clip_check(node, self.executable.watched[node.name]))
        return found

    def _clip_check(self, node: TypedNode, names: Sequence[str] | None) -> Callable[[], bool]:
        usual, all_usual = is_usual(node, names or (), self.array), is_usual(node, None, self.array)
        unusual, hopeless = self.unusual, names is None

        def check() -> bool:
            # What is known of ranges holds as long as all checks before in this run were true.
            found = not hopeless and (all_usual() if unusual else usual())
            if not found:
                unusual.append(node.name)
            return found

        return check

    def _guarded(self, placement: Placement, checks: Sequence[Callable[[], bool]], launches: Sequence[Launch]) -> Launch:
        """The primitives, or references for data that they get wrong."""
        reference = stand_in(placement.node, self.array)
        is_safe = checks[0] if len(checks) == 1 else lambda: all(check() for check in checks)
        calls = tuple(launch.call for launch in launches)

        def run() -> int:
            # Several statuses of which one is not 0 are an error whichever it is.
            return max(call() for call in calls) if is_safe() else reference() or 0

        return Launch(run, launches)
