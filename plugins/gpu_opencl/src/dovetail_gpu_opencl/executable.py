"""A graph compiled for an OpenCL device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import Executable, ExecutableRequest, Graph, MemoryPlan, NodeReport, OutOfMemory
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.hazards import Span, Step, dependencies
from dovetail_gpu_opencl.launch import Constant, Fault, Launch, Local, Read, Scalar, Write
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
        self.commands, self.reports, self.memory = tuple(commands), tuple(reports), memory
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
        return self.graph.types[self.root(value)].nbytes

    def constant(self, array: NDArray[Any]) -> Any:
        """The buffer of an uploaded array."""
        return self._constants[id(array)]

    def allocate(self) -> dict[str, Any]:
        """Buffers for all blocks of the plan: one for each of its regions.

        Whole buffers, not sub-buffers of an arena: releasing overlapping sub-buffers crashes in NVIDIA's driver 580.
        """
        sizes: dict[int, int] = {}
        for name, offset in self.memory.offsets.items():
            sizes[offset] = max(sizes.get(offset, 1), self.graph.types[name].nbytes)
        buffers = {offset: self._buffer(size, "intermediate values") for offset, size in sizes.items()}
        return {name: buffers[offset] for name, offset in self.memory.offsets.items()}

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
            return Span(root, 0, 1)  # a constant: nobody writes it
        start = self.memory.offsets[root]
        return Span(ARENA, start, start + max(1, self.nbytes(root)))

    def _buffer(self, nbytes: int, what: str) -> Any:
        if nbytes > self.caps.max_allocation:
            raise OutOfMemory(f"{what} need {nbytes} bytes; the device's largest buffer has {self.caps.max_allocation}")
        with translated(f"allocating {nbytes} bytes for {what}"):
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)

    def _upload(self) -> None:
        for command in self.commands:
            for argument in command.launch.arguments:
                if isinstance(argument, Constant):
                    self._upload_array(argument.array, command.node)
                elif isinstance(argument, Read) and self.root(argument.value) in self.graph.constants:
                    self._upload_array(self.graph.constants[self.root(argument.value)], command.node)

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
            return (buffers[root] if root in buffers else executable.constant(executable.graph.constants[root]),)
        case Constant(array):
            return (executable.constant(array),)
        case Scalar(value):
            return (value,)
        case Local(nbytes):
            return (cl.LocalMemory(nbytes),)
        case _:
            return (faults, np.int32(fault))
