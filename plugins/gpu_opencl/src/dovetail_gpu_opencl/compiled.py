"""A compiled graph: programs, constants on the device and the memory plan, which its requests share, and arguments of kernels."""

import contextlib
import dataclasses
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import Arenas, DType, Graph, MemoryPlan, OutOfMemory, aligned
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.dependencies import Span, Step, dependencies
from dovetail_gpu_opencl.enqueue import KernelObject
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.launch import Constant, Counters, Fault, Image, Launch, Local, Null, Read, Scalar, Scratch, Write, ints
from dovetail_gpu_opencl.memory import Buffers, GuardedBuffers, pinned
from dovetail_gpu_opencl.options import Options
from dovetail_gpu_opencl.packed import PackedConstants, Uploaded
from dovetail_gpu_opencl.program import ARGUMENT_INFO, Programs
from dovetail_gpu_opencl.reorder import in_layout

__all__ = ["Command", "CompiledGraph", "Flags", "bind", "readers"]

ARENA = "<arena>"
LOCKED = range(1, 1 << 28)
"""Bytes of a result that is worth a place in locked memory: an H200 writes 6 MB there in 0.12 ms, elsewhere in 0.47 ms."""


@dataclass(frozen=True, slots=True)
class Command:
    """A launch that has work items, the node it belongs to (as errors name it, and its `name`), and its program."""

    node: str
    launch: Launch
    program: Any
    name: str = ""


class CompiledGraph:
    """Programs, constants on the device, and the memory plan; requests take their buffers and kernel objects from here."""

    def __init__(
        self,
        context: Any,
        device: Any,
        caps: Capabilities,
        graph: Graph,
        commands: Sequence[Command],
        memory: MemoryPlan,
        options: Options,
        programs: Programs,
        packed: PackedConstants,
    ) -> None:
        self.context, self.device, self.caps, self.graph = context, device, caps, graph
        self.commands = tuple(commands)
        # Most are values.
        arguments = [a for c in self.commands for a in c.launch.places if type(a) is not Read and type(a) is not Write]
        self._scratch = {a.value: a.nbytes for a in arguments if isinstance(a, Scratch)}
        self._images = {a.value: a for a in arguments if isinstance(a, Image)}
        self.memory = dataclasses.replace(memory, peak=memory.peak + sum(i.nbytes for i in self._images.values()))
        self.arrays = {name: in_layout(array, graph.types[name]) for name, array in graph.constants.items()}
        self.faults = tuple((c.node, a.message) for c in self.commands for a in c.launch.places if isinstance(a, Fault))
        self.counters = sum(a.count for a in arguments if isinstance(a, Counters))
        self.downloads = tuple(self._downloaded(index) for index in range(len(graph.outputs)))
        pairs = [(name, self.root(graph.outputs[index])) for name, index in graph.states.items()]
        self.moved_states = tuple((name, root, graph.types[name].nbytes) for name, root in pairs if root != name)
        """States that are not continued where they are, each with the block that continues it, and its bytes."""
        self.options, self.programs = options, programs
        self.buffers = self.new_buffers()
        self._constants: dict[int, Uploaded] = {}
        self._packed = packed
        with translated("uploading constants"):
            self._upload()

    def root(self, value: str) -> str:
        """The value whose block holds `value`."""
        return self.memory.storage.get(value, value)

    def nbytes(self, value: str) -> int:
        """Bytes of the block that holds `value`."""
        root = self.root(value)
        return self._scratch[root] if root in self._scratch else self.graph.types[root].nbytes

    def took(self, seconds: float) -> None:
        """Notes the time of a run, for requests of the graph in other sizes."""
        self._packed.runs[self.graph.name] = seconds, self.memory.peak

    def expected(self) -> float:
        """The seconds that a run may take, by one in other sizes and its memory; infinity without one."""
        seconds, peak = self._packed.runs.get(self.graph.name, (math.inf, 1))
        return seconds * max(1.0, self.memory.peak / max(1, peak))

    def place(self, root: str, constants: Mapping[int, Uploaded]) -> Any:
        """The buffer of a value that is one of these constants; None for a state, which requests are given."""
        return None if root in self.graph.states else constants[id(self.arrays[root])].buffer

    def constants(self) -> Mapping[int, Uploaded]:
        """All uploaded arrays. OpenCL keeps no buffer alive because a kernel has it as an argument: requests hold these."""
        return self._constants

    def drop_constants(self) -> None:
        """Forget the uploaded arrays, for which requests care then, and the buffers of the host beside them."""
        self.buffers = self.new_buffers()
        self._constants = {}

    def new_buffers(self) -> Buffers:
        """The allocator of buffers: with guard bytes when buffers are debugged."""
        if self.options.DEBUG_BUFFERS:
            return GuardedBuffers(self.context, self.caps.max_allocation, on_cpu=self.caps.kind == "CPU")
        caps = self.caps
        return Buffers(self.context, caps.max_allocation, on_cpu=caps.kind == "CPU", unified_memory=caps.unified_memory)

    def allocate(self, buffers: Buffers) -> dict[str, Any]:
        """Buffers for all blocks of the plan, one for each of its regions (when they are debugged, for each block), and images.

        Whole buffers, not sub-buffers of an arena: releasing overlapping sub-buffers crashes in NVIDIA's driver 580.
        """
        if self.options.DEBUG_BUFFERS:
            found = {name: buffers.empty(max(1, self.nbytes(name)), f"{name!r}") for name in self.memory.offsets}
        else:
            sizes: dict[int, int] = {}
            for name, offset in self.memory.offsets.items():
                sizes[offset] = max(sizes.get(offset, 1), self.nbytes(name))
            regions = self._regions(sizes, buffers)
            found = {name: regions[offset] for name, offset in self.memory.offsets.items()}
        return {**found, **{name: self._image(image) for name, image in self._images.items()}}

    def _regions(self, sizes: Mapping[int, int], buffers: Buffers) -> Mapping[int, Any]:
        whole = max((offset + size for offset, size in sizes.items()), default=0)
        if not buffers.reads_host or whole < Arenas.SMALLEST:
            return {offset: buffers.empty(size, "intermediate values") for offset, size in sizes.items()}
        with translated(f"allocating {whole} bytes for intermediate values"):
            memory = self._packed.arenas.take(whole)
        return {offset: buffers.within(memory[offset : offset + size], "intermediate values") for offset, size in sizes.items()}

    def waits(self) -> tuple[tuple[int, ...], ...]:
        """The steps before that each upload, each command and each download, in this order, waits for."""
        uploads = [Step(writes=(self._span(name),)) for name in self.graph.inputs]
        launches = [
            Step(tuple(self._span(v) for v in c.launch.reads), tuple(self._span(v) for v in c.launch.writes))
            for c in self.commands
        ]
        downloads = [Step(reads=(self._span(root),)) for root in self.downloads if root]
        return dependencies([*uploads, *launches, *downloads])

    def host_array(self, queue: Any, value: str) -> NDArray[Any]:
        """An array of the host for an input or output, in memory that the driver has locked where `PINNED` asks for it."""
        found = self.graph.types[value]
        if not self.options.PINNED or not found.size:
            return np.empty(found.dims, found.dtype.numpy)
        return pinned(self.context, queue, found.dims, found.dtype.numpy)

    def result_arrays(self, queue: Any, *, locked: bool) -> tuple[NDArray[Any], ...]:
        """New arrays of the host for all outputs; with `locked`, large ones in locked memory if `has_own_memory`."""
        types = [self.graph.types[name] for name in self.graph.outputs]
        locked = locked and self.has_own_memory
        with contextlib.suppress(OutOfMemory):  # the system may lock less memory than it has
            return tuple(
                pinned(self.context, queue, t.dims, t.dtype.numpy)
                if locked and t.nbytes in LOCKED
                else np.empty(t.dims, t.dtype.numpy)
                for t in types
            )
        return tuple(np.empty(t.dims, t.dtype.numpy) for t in types)

    def fault_flags(self, queue: Any) -> NDArray[np.int32]:
        """A zero for each fault, in locked memory if `has_own_memory`.

        Elsewhere a download waits until the device is done, and costs what follows it: 55 us of MiniLM's 434 on an H200.
        """
        count = max(1, len(self.faults))
        if self.faults and self.has_own_memory:
            with contextlib.suppress(OutOfMemory):  # the system may lock less memory than it has
                flags = pinned(self.context, queue, (count,), np.dtype(np.int32))
                flags[:] = 0
                return flags
        return np.zeros(count, np.int32)

    @property
    def has_own_memory(self) -> bool:
        """True when the device is a GPU that does not share the memory of the host."""
        return self.caps.kind == "GPU" and not self.caps.unified_memory

    @property
    def is_pinned(self) -> bool:
        """True when inputs and outputs go by way of locked memory."""
        return self.options.PINNED

    @property
    def out_of_order(self) -> bool:
        """True when requests use one queue that runs commands in any order that their events allow."""
        return self.options.QUEUE == "OUT_OF_ORDER"

    def touched(self, command: Command, buffers: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """The buffers that a command reads or writes, each with what errors call it."""
        found = []
        for argument in command.launch.places:
            if isinstance(argument, Read | Write | Scratch | Constant):
                buffer = _value(self, argument, buffers, self._constants)
                nbytes = argument.array.nbytes if isinstance(argument, Constant) else self.nbytes(argument.value)
                what = "a constant made from its weights" if isinstance(argument, Constant) else str(argument)
                found.append((f"{what} ({nbytes} bytes)", buffer))
        return found

    def written(self, command: Command, buffers: Mapping[str, Any]) -> list[tuple[str, Any, DType]]:
        """The outputs of a command that runs a kernel of the user: what errors call it, its buffer and data type."""
        if not any(option.startswith(ARGUMENT_INFO) for option in command.launch.options):
            return []
        places = [argument for argument in command.launch.places if isinstance(argument, Write)]
        return [
            (str(place), _value(self, place, buffers, self._constants), self.graph.types[place.value].dtype) for place in places
        ]

    def _downloaded(self, index: int) -> str:
        """The block that an output is read from; empty when there is nothing to read: no elements, a constant, or a state."""
        output = self.graph.outputs[index]
        root = self.root(output)
        is_there = root in self.memory.offsets or root in self.graph.states
        return root if is_there and index not in self.graph.states.values() and self.graph.types[output].size else ""

    def _span(self, value: str) -> Span:
        root = self.root(value)
        if root not in self.memory.offsets:
            return Span(root, 0, 1)  # a constant, which nobody writes, an image, or a state
        start = self.memory.offsets[root]
        return Span(ARENA, start, start + max(1, self.nbytes(root)))

    def _image(self, image: Image) -> Any:
        kind = cl.channel_type.HALF_FLOAT if image.dtype is DType.FLOAT16 else cl.channel_type.FLOAT
        shape = (image.width, image.height) if image.slices is None else (image.width, image.height, image.slices)
        with translated(f"allocating {image.nbytes} bytes for an image of {shape}"):
            return cl.create_image(
                self.context,
                cl.mem_flags.READ_WRITE,
                cl.ImageFormat(cl.channel_order.R, kind),
                shape=shape,
                is_array=image.slices is not None,
            )

    def _upload(self) -> None:
        arrays, root_of = self.arrays, self.memory.storage.get
        for command in self.commands:
            for argument in command.launch.places:
                if type(argument) is Constant:
                    self._upload_array(argument.array, command.node)
                elif type(argument) is Read:
                    array = arrays.get(root_of(argument.value, argument.value))
                    if array is not None:
                        self._upload_array(array, command.node)

    def _upload_array(self, array: NDArray[Any], node: str) -> None:
        if id(array) in self._constants:
            return
        # Guard bytes are a compiled graph's own.
        shared = None if self.options.DEBUG_BUFFERS else self._packed.uploaded.get(id(array))
        self._constants[id(array)] = shared or self._uploaded(array, node)

    def _uploaded(self, array: NDArray[Any], node: str) -> Uploaded:
        with translated(f"node {node}: laying out a constant of {array.nbytes} bytes"):
            host = np.ascontiguousarray(array) if array.size else np.zeros(1, array.dtype)
            host = aligned(host) if self.buffers.reads_host else host
        found = Uploaded(array, self.buffers.holding(host, f"a constant of node {node}"))
        if not self.options.DEBUG_BUFFERS:
            self._packed.uploaded[id(array)] = found  # which keeps the array, and so its id, to itself
        return found


@dataclass
class Flags:
    """Two int buffers of a request, faults and counters, and how many of each the launches so far were given."""

    faults: Any
    counters: Any
    fault: int = 0
    counter: int = 0

    def take(self, argument: Fault | Counters) -> tuple[Any, Scalar]:
        """The two arguments of the next one."""
        if isinstance(argument, Fault):
            self.fault += 1
            return self.faults, ints(self.fault - 1)[0]
        self.counter += argument.count
        return self.counters, ints(self.counter - argument.count)[0]


def bind(
    compiled: CompiledGraph,
    command: Command,
    buffers: Mapping[str, Any],
    constants: Mapping[int, Uploaded],
    flags: Flags,
    bound: dict[Hashable, KernelObject],
) -> KernelObject:
    """A kernel object with its arguments set, but for states, which requests are given.

    `bound` takes those of a request: equal layers differ in few numbers. The `constants` are those of the request, because the
    executable may be closed.
    """
    launch = command.launch
    kind = id(command.program), launch.entry, launch.global_size
    found = bound[kind] = compiled.programs.kernel(command.program, launch.entry, bound.get(kind))
    set_number, set_place, root_of, position = found.set_number, found.set_place, compiled.memory.storage.get, 0
    numbers = found.numbers
    for argument in launch.arguments:
        if type(argument) is Scalar:
            if numbers.get(position) is not argument:
                set_number(position, argument)
        elif type(argument) is Read or type(argument) is Write:
            root = root_of(argument.value, argument.value)
            set_place(position, buffers[root] if root in buffers else compiled.place(root, constants))
        elif type(argument) is Fault or type(argument) is Counters:
            buffer, number = flags.take(argument)
            set_place(position, buffer)
            position += 1
            set_number(position, number)
        elif type(argument) is Local:
            found.set_local(position, argument.nbytes)
        else:
            set_place(position, _value(compiled, argument, buffers, constants))
        position += 1
    return found


def readers(compiled: CompiledGraph, bound: Iterable[KernelObject], name: str) -> Iterator[tuple[KernelObject, int]]:
    """The kernel objects that read an input or a state, or write a state, with the positions of their arguments."""
    kinds = (Read, Write) if name in compiled.graph.states else Read
    for command, one in zip(compiled.commands, bound, strict=True):
        position = 0
        for argument in command.launch.arguments:
            if isinstance(argument, kinds) and compiled.root(argument.value) == name:
                yield one, position
            position += 2 if isinstance(argument, Fault | Counters) else 1


def _value(compiled: CompiledGraph, argument: Any, buffers: Mapping[str, Any], constants: Mapping[int, Uploaded]) -> Any:
    if isinstance(argument, Read | Write):
        root = compiled.root(argument.value)
        return buffers[root] if root in buffers else compiled.place(root, constants)
    if isinstance(argument, Constant):
        return constants[id(argument.array)].buffer
    if isinstance(argument, Null):
        return None
    return buffers[argument.value]  # work buffers and images
