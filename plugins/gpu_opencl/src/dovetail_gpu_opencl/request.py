"""One inference at a time on an OpenCL device: buffers, kernel objects with their arguments set, and the loop over them."""

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import ExecutableRequest
from dovetail.errors import InferError, UsageError
from dovetail_gpu_opencl.failures import as_dovetail, translated
from dovetail_gpu_opencl.launch import Fault

if TYPE_CHECKING:
    from dovetail_gpu_opencl.executable import CLExecutable

__all__ = ["InOrderRequest", "OutOfOrderRequest"]

_copy = cl.enqueue_copy
_enqueue = cl.enqueue_nd_range_kernel


class CLRequest(ExecutableRequest):
    """What both kinds of queue share."""

    queue_properties: tuple[Any, ...] = ()

    def __init__(self, executable: "CLExecutable") -> None:
        self._executable = executable
        graph = executable.graph
        with translated("creating a command queue"):
            self._queue = cl.CommandQueue(executable.context, executable.device, *self.queue_properties)
        self._buffers = executable.allocate()
        self._faults = np.zeros(max(1, len(executable.faults)), np.int32)
        with translated("allocating the fault flags"):
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            self._fault_buffer: Any = cl.Buffer(executable.context, flags, hostbuf=self._faults)
        self._uploads = tuple(None if not graph.types[n].size else self._buffers[n] for n in graph.inputs)
        self._results = tuple(self._host_array(name) for name in graph.outputs)
        pairs = zip(executable.downloads, self._results, strict=True)
        self._downloads = tuple((host, self._buffers[root]) for root, host in pairs if root)
        self._launches = tuple(self._bind_all())

    def close(self) -> None:
        """Free the buffers and kernel objects. Waits for what is under way."""
        self._launches = ()
        self._downloads = ()
        self._uploads = ()
        self._buffers = {}
        self._fault_buffer = None

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Upload, launch everything, download, wait."""
        if self._fault_buffer is None:
            raise UsageError("this request was closed")
        progress = [0]
        try:
            self._enqueue_all(inputs, progress)
        except cl.Error as error:
            raise self._failure(error, progress[0]) from error
        if self._executable.faults and self._faults.any():
            self._raise_fault()
        return self._results

    @abstractmethod
    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        """Run; keep in `progress` how many launches were enqueued if one fails."""

    def _bind_all(self) -> list[tuple[Any, tuple[int, ...], tuple[int, ...] | None]]:
        from dovetail_gpu_opencl.executable import bind

        found, fault = [], 0
        for command in self._executable.commands:
            with translated(f"node {command.node}: setting the arguments of {command.launch.entry!r} ({command.launch.file})"):
                kernel = bind(self._executable, command, self._buffers, self._fault_buffer, fault)
            fault += sum(isinstance(a, Fault) for a in command.launch.arguments)
            found.append((kernel, command.launch.global_size, command.launch.local_size))
        return found

    def _host_array(self, name: str) -> NDArray[Any]:
        graph = self._executable.graph
        root = self._executable.root(name)
        result = graph.types[name]
        if root in graph.constants:
            return graph.constants[root].reshape(result.dims)
        return np.empty(result.dims, result.dtype.numpy)

    def _failure(self, error: Any, launched: int) -> Exception:
        commands = self._executable.commands
        where = f"node {commands[launched].node}" if launched < len(commands) else "waiting for the results"
        with contextlib.suppress(cl.Error):  # the queue may be lost; the first error is the one to tell
            self._queue.finish()
        return as_dovetail(error, f"{where}, with {self._executable.memory.peak} bytes of intermediate values")

    def _raise_fault(self) -> None:
        index = int(np.flatnonzero(self._faults)[0])
        self._faults[:] = 0
        with translated("resetting the fault flags"):
            _copy(self._queue, self._fault_buffer, self._faults)
        node, message = self._executable.faults[index]
        raise InferError(f"node {node}: {message}")


class InOrderRequest(CLRequest):
    """Commands run one after the other; no event is waited for but the last."""

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        queue, enqueue = self._queue, _enqueue
        # pyopencl waits for a copy whose event is dropped, so they are kept to the end.
        events = [_copy(queue, b, a, is_blocking=False) for a, b in zip(inputs, self._uploads, strict=True) if b is not None]
        kernel = None
        try:
            for kernel, global_size, local_size in self._launches:  # the handler reads it
                enqueue(queue, kernel, global_size, local_size)
        except cl.Error:
            progress[0] = next(i for i, launch in enumerate(self._launches) if launch[0] is kernel)
            raise
        progress[0] = len(self._launches)
        events += [_copy(queue, *pair, is_blocking=False) for pair in self._downloads]
        if self._executable.faults:
            events.append(_copy(queue, self._faults, self._fault_buffer, is_blocking=False))
        queue.finish()


class OutOfOrderRequest(CLRequest):
    """Every command waits for the events of its true producers, and of whoever used the memory that it overwrites."""

    queue_properties = (cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE,)

    def __init__(self, executable: "CLExecutable") -> None:
        super().__init__(executable)
        self._waits = executable.waits()

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        queue, events, waits = self._queue, [], iter(self._waits)
        for array, buffer in zip(inputs, self._uploads, strict=True):
            next(waits)
            events.append(cl.enqueue_marker(queue) if buffer is None else _copy(queue, buffer, array, is_blocking=False))
        for index, (kernel, global_size, local_size) in enumerate(self._launches):
            progress[0] = index
            after = [events[i] for i in next(waits)]
            events.append(_enqueue(queue, kernel, global_size, local_size, None, after))
        progress[0] = len(self._launches)
        for pair in self._downloads:
            after = [events[i] for i in next(waits)]
            events.append(_copy(queue, *pair, is_blocking=False, wait_for=after))
        queue.finish()
        if self._executable.faults:
            _copy(queue, self._faults, self._fault_buffer)
