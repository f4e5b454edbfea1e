"""A graph compiled for an OpenCL device."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import DType, Executable, ExecutableRequest, Graph, MemoryPlan, NodeReport, OutOfMemory
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.hazards import Span, Step, dependencies
from dovetail_gpu_opencl.launch import Constant, Fault, Image, Launch, Local, Null, Read, Scalar, Scratch, Write
from dovetail_gpu_opencl.reorder import laid_out
from dovetail_gpu_opencl.request import InOrderRequest, OutOfOrderRequest

__all__ = ["CLExecutable", "Command"]

ARENA = "<arena>"


@dataclass(frozen=True, slots=True)
class Command:
    """A launch that has work items, the node it belongs to (as errors name it), and its program."""

    node: str
    launch: Launch
    program: Any


class CLExecutable(Executable):
    """Programs, constants on the device, and the memory plan; requests take their buffers and kernel objects from here."""

    def __init__(
        self,
        context: Any,
        device: Any,
        caps: Capabilities,
        graph: Graph,
        commands: Sequence[Command],
        reports: Sequence[NodeReport],
        memory: MemoryPlan,
        *,
        out_of_order: bool,
    ) -> None:
        self.context, self.device, self.caps, self.graph = context, device, caps, graph
        self.commands, self.reports = tuple(commands), tuple(reports)
        arguments = [a for c in self.commands for a in c.launch.arguments]
        self._scratch = {a.value: a.nbytes for a in arguments if isinstance(a, Scratch)}
        self._images = {a.value: a for a in arguments if isinstance(a, Image)}
        self.memory = dataclasses.replace(memory, peak=memory.peak + sum(i.nbytes for i in self._images.values()))
        self.arrays = {name: laid_out(array, graph.types[name]) for name, array in graph.constants.items()}
        self.faults = tuple((c.node, a.message) for c in self.commands for a in c.launch.arguments if isinstance(a, Fault))
        self.downloads = tuple(self._downloaded(name) for name in graph.outputs)
        self._out_of_order = out_of_order
        self._constants: dict[int, Any] = {}
        self._arrays: list[NDArray[Any]] = []
        self._upload()

    def create_request(self) -> ExecutableRequest:
        """A new request with a queue, an arena and kernel objects of its own."""
        return OutOfOrderRequest(self) if self._out_of_order else InOrderRequest(self)

    def close(self) -> None:
        """Drop the constants; the driver frees them when the last request is gone."""
        self._constants.clear()
        self._arrays.clear()

    # --- for requests ----------------------------------------------------------------------------------------------

    def root(self, value: str) -> str:
        """The value whose block holds `value`."""
        return self.memory.storage.get(value, value)

    def nbytes(self, value: str) -> int:
        """Bytes of the block that holds `value`."""
        root = self.root(value)
        return self._scratch[root] if root in self._scratch else self.graph.types[root].nbytes

    def constant(self, array: NDArray[Any]) -> Any:
        """The buffer of an uploaded array."""
        return self._constants[id(array)]

    def allocate(self) -> dict[str, Any]:
        """Buffers for all blocks of the plan, one for each of its regions, and images.

        Whole buffers, not sub-buffers of an arena: releasing overlapping sub-buffers crashes in NVIDIA's driver 580.
        """
        sizes: dict[int, int] = {}
        for name, offset in self.memory.offsets.items():
            sizes[offset] = max(sizes.get(offset, 1), self.nbytes(name))
        buffers = {offset: self._buffer(size, "intermediate values") for offset, size in sizes.items()}
        found = {name: buffers[offset] for name, offset in self.memory.offsets.items()}
        return {**found, **{name: self._image(image) for name, image in self._images.items()}}

    def waits(self) -> tuple[tuple[int, ...], ...]:
        """For an out-of-order queue: what each upload, each command and each download must wait for."""
        uploads = [Step(writes=(self._span(name),)) for name in self.graph.inputs]
        launches = [
            Step(tuple(self._span(v) for v in c.launch.reads), tuple(self._span(v) for v in c.launch.writes))
            for c in self.commands
        ]
        downloads = [Step(reads=(self._span(root),)) for root in self.downloads if root]
        return dependencies([*uploads, *launches, *downloads])

    def _downloaded(self, output: str) -> str:
        """The block that an output is read from; empty when there is nothing to read: no elements, or a constant."""
        root = self.root(output)
        return root if root in self.memory.offsets and self.graph.types[output].size else ""

    def _span(self, value: str) -> Span:
        root = self.root(value)
        if root not in self.memory.offsets:
            return Span(root, 0, 1)  # a constant, which nobody writes, or an image
        start = self.memory.offsets[root]
        return Span(ARENA, start, start + max(1, self.nbytes(root)))

    def _buffer(self, nbytes: int, what: str) -> Any:
        if nbytes > self.caps.max_allocation:
            raise OutOfMemory(f"{what} need {nbytes} bytes; the device's largest buffer has {self.caps.max_allocation}")
        with translated(f"allocating {nbytes} bytes for {what}"):
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)

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
        for command in self.commands:
            for argument in command.launch.arguments:
                if isinstance(argument, Constant):
                    self._upload_array(argument.array, command.node)
                elif isinstance(argument, Read) and self.root(argument.value) in self.arrays:
                    self._upload_array(self.arrays[self.root(argument.value)], command.node)

    def _upload_array(self, array: NDArray[Any], node: str) -> None:
        if id(array) in self._constants:
            return
        self._arrays.append(array)  # ids stay unique while the array lives
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        host = np.ascontiguousarray(array) if array.size else np.zeros(1, array.dtype)
        with translated(f"node {node}: uploading a constant of {host.nbytes} bytes"):
            self._constants[id(array)] = cl.Buffer(self.context, flags, hostbuf=host)


def bind(executable: CLExecutable, command: Command, buffers: Mapping[str, Any], faults: Any, first_fault: int) -> Any:
    """A kernel object with its arguments set."""
    kernel = cl.Kernel(command.program, command.launch.entry)
    position = 0
    for argument in command.launch.arguments:
        for value in _values(executable, argument, buffers, faults, first_fault):
            kernel.set_arg(position, value)
            position += 1
        first_fault += isinstance(argument, Fault)
    return kernel


def _values(executable: CLExecutable, argument: Any, buffers: Mapping[str, Any], faults: Any, fault: int) -> tuple[Any, ...]:
    match argument:
        case Read(value) | Write(value):
            root = executable.root(value)
            return (buffers[root] if root in buffers else executable.constant(executable.arrays[root]),)
        case Scratch(value) | Image(value):
            return (buffers[value],)
        case Null():
            return (None,)
        case Constant(array):
            return (executable.constant(array),)
        case Scalar(value):
            return (value,)
        case Local(nbytes):
            return (cl.LocalMemory(nbytes),)
        case _:
            return (faults, np.int32(fault))
