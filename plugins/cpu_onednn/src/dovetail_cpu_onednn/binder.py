"""The values of one request, and the calls of its runs bound to them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Node, TensorType, TypedNode
from dovetail.locks import cached_property
from dovetail_cpu_onednn.binding import Arg, Launch, Memory, MemoryDesc, Onednn, Stream
from dovetail_cpu_onednn.kernel import Argument
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import aligned
from dovetail_cpu_onednn.nan.bounds import are_moderate
from dovetail_cpu_onednn.nan.fused_steps import has_no_nan, may_make_nan
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, Values, in_turn, number
from dovetail_cpu_onednn.reference import reference_call

if TYPE_CHECKING:
    from dovetail_cpu_onednn.executable import OnednnExecutable
    from dovetail_cpu_onednn.placement import Placement
    from dovetail_cpu_onednn.planned import Prepared

__all__ = ["Binder", "Output", "move"]

T = TypeVar("T")

NEW = 1 << 17
"""Bytes of an output from which on it is written into a new array: to tell primitives its address, or to bind one kernel in
Python to it, takes less than a copy."""

LENT = 1 << 18
"""Bytes of inputs from which on binding a kernel in Python to the caller's arrays, some 5 us, takes less than copies."""

PART = 1 << 15
"""Bytes of an input from which on a kernel that is bound anew in any case takes the caller's array, 1 us, and no copy."""


@dataclass(frozen=True, slots=True)
class Output:
    """The type of an output, its block, and all memory objects of that."""

    type: TensorType
    block: str
    memories: tuple[Memory, ...]

    def make(self) -> Array:
        """A new array, into which the next run writes. Raises `MemoryError`."""
        array = aligned(self.type.nbytes).view(self.type.dtype.numpy).reshape(self.type.memory_dims)
        move(self.memories, array)
        return array


def move(memories: Iterable[Memory], array: Array) -> None:
    """Let memory objects use an array, which the caller keeps alive."""
    address = array.ctypes.data
    for memory in memories:
        library().set_address(memory, address)


class Binder:
    """The values of one request in its arena, as arrays and as memory objects.

    `readers` maps the blocks of inputs and outputs to their memory objects; `arrays` are the blocks that are used as arrays.
    `lent` are the inputs that kernels in Python read in the caller's memory, `placed` the blocks of outputs that they may write
    into new arrays; each run puts these arrays into `given`.
    `large` are the nodes whose clip was not safe for the numbers of this run, `with_nan` the values in which NaN was found.
    """

    def __init__(self, executable: "OnednnExecutable", strict: bool, states: Mapping[str, Array]) -> None:
        self.executable = executable
        # Kept here, because `close` takes them from the executable.
        self._prepared, self._constants = executable.held()
        self._states = states
        self._is_strict = strict
        self._types = executable.graph.types
        self.arena = executable.arenas.take(executable.memory.peak)
        self._start, self._bytes = int(self.arena.ctypes.data), self.arena.data
        self.stream: Stream = library().stream()
        self._planned = 0
        self._addresses: dict[str, int] = {}
        self._shared: dict[Callable[[], Any], Any] = {}
        self._memories: dict[tuple[str | int, MemoryDesc, int], Memory] = {}
        # Runs may give these other addresses.
        graph, storage = executable.graph, executable.memory.storage
        self._storage, self._offsets = storage, executable.memory.offsets
        self._moved = {*graph.inputs, *(storage[name] for name in graph.outputs)}
        self.readers: dict[str, list[Memory]] = {}
        self.arrays: set[str] = set()
        self.lent: set[str] = set()
        self.placed: set[str] = set()
        self.given: dict[str, Array] = {}
        self.large: list[str] = []
        self.with_nan: list[str] = []

    @cached_property
    def _read(self) -> frozenset[str]:
        """The values that nodes read, or that are outputs."""
        graph = self.executable.graph
        return frozenset(graph.outputs).union(*(node.reads for node in graph.nodes))

    @cached_property
    def _inputs(self) -> frozenset[str]:
        """The inputs that kernels in Python may read where the caller has them."""
        inputs = self.executable.graph.inputs
        return frozenset(name for name in inputs if name not in self._states and self._types[name].nbytes >= PART)

    @cached_property
    def _own_blocks(self) -> frozenset[str]:
        """The blocks of large outputs that nobody else sees; to bind their kernels in Python takes less time than a copy."""
        graph, storage, blocks = self.executable.graph, self._storage, self.executable.blocks
        roots = [storage[name] for name in graph.outputs]
        found = {
            root: blocks[name]
            for name, root in zip(graph.outputs, roots, strict=True)
            if NEW <= blocks[name] == self._types[name].nbytes
            and root not in graph.inputs
            and self._outside(root) is None
            and roots.count(root) == 1
        }
        if not found or self._states:
            return frozenset()
        for placement in self.executable.placements:
            node, kernel = placement.node.node, placement.kernel
            if isinstance(kernel, PythonKernel):
                for root in {storage[name] for name in (*node.reads, *node.writes)} & found.keys():
                    found[root] = found[root] - NEW if kernel.binds_quickly else -1
        return frozenset(root for root, left in found.items() if left >= 0)

    def launches(self, placement: "Placement") -> Iterator[Launch | Call]:
        """All that a node does, in order."""
        if placement.threads != self._planned:
            self._planned = placement.threads
            library().plan_threads(placement.threads)
        name = placement.node.node.name
        if names := self.executable.nan_checks.before.get(name):
            yield from self.nan_checks(names)
        prepared = self._prepared.get(name)
        if prepared is not None and self._is_strict and may_make_nan(placement.node):
            yield reference_call(placement.node, self.array)
        elif prepared is not None and (checks := self._checks(placement)):
            yield self._guarded(placement, checks, [self._launch(placement, one) for one in prepared])
        elif prepared is not None:
            for one in prepared:
                yield self._number(placement.node, one) if one.stage.is_number else self._launch(placement, one)
        elif isinstance(placement.kernel, PythonKernel):
            yield from self._in_python(placement.kernel, placement.node)

    def _in_python(self, kernel: PythonKernel, node: TypedNode) -> Iterable[Call]:
        """The calls of the kernel. One that reads or writes much at the border of the model is bound to it in each run."""
        moved = self._moved_in_python(node.node) if kernel.binds_quickly else frozenset[str]()
        if not moved:
            return kernel.bind(node, self)
        storage, types, given = self._storage, self._types, self.given
        arrays = {name: self.array(name) for name in (*node.node.reads, *node.node.writes) if storage[name] not in moved}
        bind = kernel.binding(node)

        def array(name: str) -> Array:
            if name in arrays:
                return arrays[name]
            found, block = types[name], given.get(storage[name])
            if block is None:  # something else needs the output in the arena
                return self.array(name)
            return np.ndarray(found.memory_dims, found.dtype.numpy, block)

        def run() -> int | None:
            for call in bind(cast("Values", array)):
                if status := call():
                    return status
            return 0

        return [run]

    def _moved_in_python(self, node: Node) -> frozenset[str]:
        """The blocks that the kernel of the node finds in other places in each run."""
        reads, writes = ({self._storage[name] for name in names} for names in (node.reads, node.writes))
        placed = (reads | writes) & self._own_blocks
        lent = (reads & self._inputs) - writes
        if not placed and sum(self._types[name].nbytes for name in lent) < LENT:
            return frozenset()
        self.lent |= lent
        self.placed |= placed
        return frozenset(lent | placed)

    def nan_checks(self, names: Sequence[str]) -> Iterator[Launch]:
        """Calls that search values for NaN."""
        for name in () if self._is_strict else names:
            yield self._nan_check(name, has_no_nan(self.array(name), self.stream))

    def _nan_check(self, name: str, has_no_nan: Callable[[], bool]) -> Launch:
        def check() -> int:
            if not has_no_nan():
                self.with_nan.append(name)
            return 0

        return Launch(check, ())

    def refused(self, node: TypedNode, otherwise: Call) -> Call:
        """The call for data that a kernel cannot compute, after a look for NaN in input 0 if a node before may have made that."""
        is_searched = node.node.name in self.executable.nan_checks.refused and not self._is_strict
        return self._noting_nan(node.node.inputs[0], otherwise) if is_searched else otherwise

    def _noting_nan(self, name: str, otherwise: Call) -> Call:
        """The call, after a look for NaN in the value."""

        def run() -> int | None:
            if not has_no_nan(self.array(name), self.stream)():
                self.with_nan.append(name)
            return otherwise()

        return run

    def array(self, name: str) -> Array:
        """A value in its layout."""
        found, root = self._types[name], self._storage[name]
        dims = found.memory_dims
        if (outside := self._outside(root)) is not None:
            return outside.view(found.dtype.numpy).reshape(dims)
        self.arrays.add(root)
        return np.ndarray(dims, found.dtype.numpy, self.arena, self._offsets[root])

    def __call__(self, name: str) -> Array:
        """As `array`."""
        return self.array(name)

    def number(self, name: str) -> MutableSequence[Any]:
        """The single element of a value as the function `number` gives it, in a third of the time."""
        dtype, root = self._types[name].dtype.numpy, self._storage[name]
        if self._outside(root) is not None:
            return number(self.array(name))
        self.arrays.add(root)
        start = self._offsets[root]
        element: Any = self._bytes[start : start + dtype.itemsize]
        return cast("MutableSequence[Any]", element.cast(dtype.char))

    def memory(self, name: str, desc: MemoryDesc) -> Memory:
        """The memory object of a value that is used as an array too, so that it stays where it is."""
        root = self._storage[name]
        self.arrays.add(root)
        return self._at(self._addresses.get(root) or self._address(root), desc)

    def shared(self, make: Callable[[], T]) -> T:
        """The result of `make`, called once."""
        if make not in self._shared:
            self._shared[make] = make()
        found: T = self._shared[make]
        return found

    def is_new(self, name: str) -> bool:
        """Whether an output may be written into a new array: nothing uses its block where it is."""
        root = self._storage[name]
        return root in self._own_blocks and root not in self.arrays and (root in self.readers or root in self.placed)

    def output(self, name: str) -> Output:
        """For an output that is new."""
        root = self._storage[name]
        return Output(self._types[name], root, tuple(self.readers.get(root, ())))

    def _outside(self, root: str) -> Array | None:
        """The array of a state or a constant; None for a block of the arena."""
        if root in self._states:
            return self._states[root]
        if root in self._constants:  # not `get`, which raises and catches a KeyError for most
            return self._constants[root]
        return None

    def _address(self, root: str) -> int:
        """Where a block of memory begins, when it is first asked for."""
        outside = self._outside(root)
        found = self._start + self._offsets[root] if outside is None else int(outside.ctypes.data)
        self._addresses[root] = found
        return found

    def _launch(self, placement: "Placement", prepared: "Prepared") -> Launch:
        lib, node, constants = library(), placement.node.node, prepared.constants
        bound = [
            (a.arg, self._memory(lib, node, a) if (known := constants.get(a.arg)) is None else known.memory)
            for a in prepared.stage.arguments
        ]
        if prepared.scratchpad:
            address = self._start + self._offsets[f"scratch:{node.name}:0"]
            bound.append((Arg.SCRATCHPAD, self._at(address, lib.scratchpad_md(prepared.stage.desc))))
        return lib.launch(prepared.primitive, self.stream, bound, placement.is_short)

    def _memory(self, lib: Onednn, node: Node, argument: Argument) -> Memory:
        place, desc, offset = argument.place, argument.desc, argument.offset
        if place == "scratch":
            start = self._start + self._offsets[f"scratch:{node.name}:{argument.index + 1}"]
            return self._at(start, desc, offset)
        names = node.inputs if place == "input" else node.outputs if place == "output" else node.operands
        root = self._storage[names[argument.index]]
        address = self._addresses.get(root)
        if address is None:
            address = self._address(root)
        if root not in self._moved:
            return self._at(address, desc, offset)
        key = root, desc, offset
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = lib.memory(desc, address, offset)
            self.readers.setdefault(root, []).append(memory)
        return memory

    def _at(self, address: int, desc: MemoryDesc, offset: int = 0) -> Memory:
        """The memory object of an address that stays: layers that repeat mostly use the same places one after another."""
        key = address, desc, offset
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = library().memory(desc, address, offset)
        return memory

    def _number(self, node: TypedNode, prepared: "Prepared") -> Call:
        """Copies a single number by Python: 0.1 us, and 2 us by a primitive."""
        src, dst = prepared.stage.arguments
        start = self._offsets[f"scratch:{node.name}:{dst.index + 1}"]
        source, copy = self.number(node.node.inputs[src.index]), self._bytes[start : start + 4].cast("i")

        def run() -> None:
            copy[0] = source[0]

        return run

    def _checks(self, placement: "Placement") -> list[Callable[[], bool]]:
        """The checks that the data must pass for the primitives to be right."""
        node, found = placement.node, []
        if placement.kernel.is_guarded(node):
            found.append(placement.kernel.safety(node, self.array, self.stream))
        if node.name in self.executable.clip_checks:
            found.append(self._clip_check(node, self.executable.clip_checks[node.name]))
        return found

    def _reference(self, node: TypedNode) -> Call:
        """The node by references, made when it is first needed: few runs have such data."""
        # Its arrays are views of memory that is there in each run: no input that it reads is given to primitives alone.
        self.arrays.update(self._storage[name] for name in (*node.node.reads, *node.node.writes))
        made: list[Call] = []

        def run() -> int | None:
            if not made:
                made.append(reference_call(node, self.array))
            return made[0]()

        return run

    def _clip_check(self, node: TypedNode, names: Sequence[str] | None) -> Callable[[], bool]:
        known = are_moderate(node, names or (), self.array)
        large, constants_are_large = self.large, names is None

        def check() -> bool:
            # The bounds of earlier values hold only while all earlier checks of this run were true.
            found = not constants_are_large and (are_moderate(node, None, self.array)() if large else known())
            if not found:
                large.append(node.name)
            return found

        return check

    def _guarded(self, placement: "Placement", checks: Sequence[Callable[[], bool]], launches: Sequence[Launch]) -> Launch:
        """The primitives, or what the kernel has for data that they get wrong."""
        is_safe = checks[0] if len(checks) == 1 else lambda: all(check() for check in checks)
        calls = tuple(launch.call for launch in launches)
        node = placement.node
        unread = frozenset(name for name in node.node.outputs if name not in self._read)
        otherwise = placement.kernel.otherwise(node, self.array, unread, calls, self._reference(node))
        otherwise = self.refused(node, otherwise)
        call = calls[0] if len(calls) == 1 else in_turn(calls)
        return Launch(lambda: (call() if is_safe() else otherwise()) or 0, launches)
