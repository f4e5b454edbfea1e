"""One inference at a time on an OpenCL device: buffers, kernel objects with their arguments set, and the loop over them."""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from sys import getrefcount
from time import perf_counter
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import DeviceArray, ExecutableRequest, PartRecorder, current_budget
from dovetail.errors import InferError, RunCancelled, TimeLimitExceeded, UsageError
from dovetail_gpu_opencl.compiled import CompiledGraph, Flags, bind, readers
from dovetail_gpu_opencl.enqueue import Bound, KernelObject, calls
from dovetail_gpu_opencl.failures import as_dovetail, translated
from dovetail_gpu_opencl.kept import held, is_held, on_host
from dovetail_gpu_opencl.lifetime import IN_USE
from dovetail_gpu_opencl.staging import STAGED, Staging

__all__ = ["DebugRequest", "EventRequest", "InOrderRequest"]


LONG = 0.05
"""Seconds: longer runs wait for the device about so often, because what is enqueued cannot be taken back."""

LOCKED_SETS = 2
"""Arrays for the results of runs that are in locked memory: the caller has one while the next run writes the other."""

_UNUSED = 2
"""References to an array that one tuple alone has: the tuple's, and that of the call which counts them."""

FIRST_PART = 8
"""Launches before the first wait of a request's first run, unless a run of other sizes says that it is short."""


class CLRequest(ExecutableRequest):
    """The base of requests for both kinds of queue."""

    def __init__(self, compiled: CompiledGraph, create_profiled: Callable[[], ExecutableRequest] | None = None) -> None:
        self._compiled = compiled
        self._create_profiled = create_profiled
        self._profiled: ExecutableRequest | None = None
        graph = compiled.graph
        with translated("creating a command queue"):
            self._queue = self._make_queue()
        self._memory = compiled.new_buffers()
        self._constants = compiled.constants()
        self._buffers = compiled.allocate(self._memory)
        with translated("allocating the fault flags"):
            self._faults = compiled.fault_flags(self._queue)
        self._fault_buffer: Any = self._memory.holding(self._faults, "fault flags", written=True)
        self._counters = np.zeros(max(1, compiled.counters), np.int32)
        self._counter_buffer: Any = self._memory.holding(self._counters, "counters", written=True)
        self.kept_states = tuple(i for i, name in enumerate(graph.inputs) if name in graph.states)
        self._states: dict[str, DeviceArray] = {}
        self._uploads = tuple(self._buffers[n] if graph.types[n].size and n not in graph.states else None for n in graph.inputs)
        with translated("allocating the outputs"):
            self._results = [self._host_array(index) for index in range(len(graph.outputs))]
        staged = graph.inputs if compiled.is_pinned else ()
        self._staging = tuple(None if n in graph.states else compiled.host_array(self._queue, n) for n in staged)
        # What a run returns is the caller's: results of 6 MB take 0.6 ms to copy on the host of an H200.
        self.fresh = not compiled.is_pinned and all(compiled.downloads)
        self._given: list[tuple[NDArray[Any], ...]] = []
        self._locked = LOCKED_SETS
        self._downloads = self._downloaded()
        self._readers: dict[str, tuple[tuple[KernelObject, int], ...]] = {}
        self._bound: list[Bound] = []
        self._flags, self._latest = Flags(self._fault_buffer, self._counter_buffer), dict[Hashable, KernelObject]()
        self._part = max(1, len(compiled.commands)) if compiled.expected() < LONG / 4 else FIRST_PART
        self._keeps = False
        self._apart: dict[int, Any] = {}

    def _properties(self) -> Any:
        return 0

    def _make_queue(self) -> Any:
        return cl.CommandQueue(self._compiled.context, self._compiled.device, self._properties())

    def run_traced(self, inputs: Sequence[NDArray[Any]], recorder: PartRecorder) -> Sequence[NDArray[Any]]:
        """As `run`, by a request with profiled queues and buffers of its own, with a slice for each command."""
        if self._profiled is None and self._create_profiled is not None:
            self._profiled = self._create_profiled()
        if self._profiled is None:
            return super().run_traced(inputs, recorder)
        return self._profiled.run_traced(inputs, recorder)

    def close(self) -> None:
        """Free the buffers and kernel objects. Waits for what is under way."""
        if self._profiled is not None:
            self._profiled.close()
            self._profiled = None
        self._bound, self._latest = [], {}
        self._given = []
        self._readers = {}
        self._staging = ()
        self._downloads = ()
        self._uploads = ()
        self._states = {}
        self._buffers = {}
        self._constants = {}
        self._fault_buffer = self._counter_buffer = None
        self._faults = np.zeros_like(self._faults)
        self._memory = self._compiled.new_buffers()

    def _downloaded(self) -> tuple[tuple[NDArray[Any], str], ...]:
        """The arrays of results, each with the block that it is read from."""
        pairs = zip(self._compiled.downloads, self._results, strict=True)
        return tuple((host, root) for root, host in pairs if root)

    def _for_results(self) -> tuple[NDArray[Any], ...]:
        """Arrays for the results of a run: those of an earlier one that nobody has any more, or new ones.

        New memory costs the host a page fault for every 4 kB when it is written, and as much again when it is freed: 1.1 ms for
        6 MB on the host of an H200. Locking memory takes twice that, so only the first arrays are locked: a caller who holds all
        results has no others of these.
        """
        for arrays in self._given:
            if all(getrefcount(arrays[i]) <= _UNUSED for i in range(len(arrays))):
                return arrays
        arrays = self._compiled.result_arrays(self._queue, locked=self._locked > 0)
        self._locked -= 1
        self._given = [*self._given[-1:], arrays]
        return arrays

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Upload, launch everything, download, wait. Raises `DeviceError` in a forked process, and at the process's end.

        Raises `RunCancelled` and `TimeLimitExceeded` between two parts of a long run.
        """
        if self.fresh and self._buffers:  # a closed request has none
            self._results = list(self._for_results())
            self._downloads = self._downloaded()
        self._run(inputs)
        return self._results

    def run_kept(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As `run`, without transfers of what stays on the device: kernels read the buffers of other requests' results."""
        graph, context = self._compiled.graph, self._compiled.context
        given: list[Any] = []
        lent: list[str] = []
        try:
            for name, value in zip(graph.inputs, inputs, strict=True):
                if name in graph.states:
                    given.append(value)
                elif name not in self._compiled.downloads and is_held(value, context):
                    self._pass(name, value.held.buffer)
                    lent.append(name)
                    given.append(None)
                else:
                    given.append(on_host(value))
            self._keeps = True
            self._run(given)
            return [self._kept(index) for index in range(len(graph.outputs))]
        finally:
            self._keeps, self._apart = False, {}
            for name in lent:
                self._pass(name, self._buffers.get(name))

    def _kept(self, index: int) -> DeviceArray:
        root, result = self._compiled.downloads[index], self._results[index]
        if isinstance(result, DeviceArray):
            return result
        if not root:
            return DeviceArray.on_host(result)
        own = self._apart.get(index)
        return held(self._compiled.context, self._queue, own or self._buffers[root], result, own=own is not None)

    def _set_apart(self) -> None:
        """Copy the states in which results are, as views of them are: this run and later ones write there."""
        for index, root in enumerate(self._compiled.downloads):
            if root in self._compiled.graph.states:
                nbytes = self._compiled.nbytes(root)
                self._apart[index] = buffer = self._memory.empty(nbytes, f"a copy of the state {root!r}")
                cl.enqueue_copy(self._queue, buffer, self._buffers[root], byte_count=nbytes).wait()

    def _run(self, inputs: Sequence[Any]) -> None:
        if self._fault_buffer is None:
            raise UsageError("this request was closed")
        progress = [0]
        with IN_USE:
            started = perf_counter()
            try:
                self._enqueue_all(self._staged(self._without_states(inputs)), progress)
                if self._keeps:
                    self._set_apart()
                self._continue_states()
            except (RunCancelled, TimeLimitExceeded):
                self._reset_faults()  # a node that ran may have set one
                raise
            except (cl.Error, MemoryError) as error:
                raise self._failure(error, progress[0]) from error
            seconds = perf_counter() - started
            self._compiled.took(seconds)
            if seconds > LONG and self._part >= len(self._bound):
                self._part = max(1, int(len(self._bound) * LONG / seconds))
            if self._compiled.faults and self._faults.any():
                self._raise_fault()

    def _without_states(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with None for states, whose buffers the kernels then have."""
        if not self.kept_states:
            return inputs
        rest, names = list(inputs), self._compiled.graph.inputs
        for position in self.kept_states:
            given, rest[position] = rest[position], None
            if given is not self._states.get(names[position]):
                self._take_state(names[position], given)
        return rest

    def _take_state(self, name: str, given: Any) -> None:
        context = self._compiled.context
        if not is_held(given, context) or not given.own:  # others may read it in a request's memory
            self._states.pop(name, None)
            self._buffers.pop(name, None)
            host = np.ascontiguousarray(on_host(given))
            what = f"the state {name!r}"
            buffer = self._memory.holding(host, what, written=True) if host.any() else self._memory.zeros(host.nbytes, what)
            given = held(context, self._queue, buffer, host, own=True)
        self._states[name], self._buffers[name] = given, given.held.buffer
        self._pass(name, given.held.buffer)
        self._results[self._compiled.graph.states[name]] = given

    def _continue_states(self) -> None:
        """Copy the outputs that are not in the memory of the states that they continue."""
        moved = [(self._buffers[name], self._buffers[root], size) for name, root, size in self._compiled.moved_states]
        events = [cl.enqueue_copy(self._queue, dst, src, byte_count=size) for dst, src, size in moved]
        if events:
            self._queue.finish()

    def _to_read(self) -> Iterator[tuple[NDArray[Any], Any]]:
        """The arrays of results that come to the host, each with the buffer that it is read from."""
        return ((host, self._buffers[root]) for host, root in (() if self._keeps else self._downloads))

    def _pass(self, name: str, buffer: Any) -> None:
        """Set a buffer as the argument of all kernels that read the value."""
        if name not in self._readers:
            self._readers[name] = tuple(readers(self._compiled, [one for one, *_ in self._launches], name))
        for kernel, position in self._readers[name]:
            kernel.set_place(position, buffer)

    @abstractmethod
    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        """Run; keep in `progress` how many launches were enqueued if one fails."""

    def _in_parts(self, launch: Callable[[int, int], None]) -> None:
        """Enqueue all launches by `launch(first, last)`: at once where runs are short, else so many that they take about `LONG`
        before the device is waited for, and the budget of the run is looked at."""
        count = len(self._compiled.commands)
        if self._part >= count:
            launch(0, count)
            return
        budget, first = current_budget(), 0
        while first < count:
            if budget is not None:
                budget.check(f"node {self._compiled.commands[first].node}")
            last, started = min(count, first + self._part), perf_counter()
            launch(first, last)
            if last < count:
                self._finish()
            seconds, first = perf_counter() - started, last
            if seconds < LONG / 4:
                self._part *= 2
            elif seconds > LONG:
                self._part = max(1, self._part // 2)

    @property
    def _launches(self) -> Sequence[Bound]:
        """The kernel objects of all commands, with their sizes."""
        while len(self._bound) < len(self._compiled.commands):
            self._bind_next()
        return self._bound

    def _bind_next(self) -> None:
        """Set the arguments of the next command's kernel."""
        compiled = self._compiled
        command = compiled.commands[len(self._bound)]
        launch, flags = command.launch, (self._flags.fault, self._flags.counter)
        try:  # not `translated`, which takes 3 us
            one = bind(compiled, command, self._buffers, self._constants, self._flags, self._latest)
        except (cl.Error, MemoryError) as error:
            self._flags.fault, self._flags.counter = flags  # the next run binds it again
            with contextlib.suppress(cl.Error):
                self._finish()  # what was launched before it uses the buffers
            what = f"node {command.node}: setting the arguments of {launch.entry!r} ({launch.file})"
            raise as_dovetail(error, what) from error
        self._bound.append((one, launch.global_size, launch.local_size))
        if len(self._bound) == len(compiled.commands):
            self._latest = {}
            pairs = zip(compiled.commands, self._bound, strict=True)
            compiled.programs.lend(self, ((c.program, c.launch.entry, kernel) for c, (kernel, *_) in pairs))

    def _host_array(self, index: int) -> Any:
        """The array of the host for an output; None for one that continues a state."""
        graph = self._compiled.graph
        name = graph.outputs[index]
        if index in graph.states.values():
            return None
        root = self._compiled.root(name)
        result = graph.types[name]
        if root in graph.constants:
            return graph.constants[root].reshape(result.dims)
        return self._compiled.host_array(self._queue, name)

    def _failure(self, error: Any, launched: int) -> Exception:
        commands = self._compiled.commands
        where = f"node {commands[launched].node}" if launched < len(commands) else "waiting for the results"
        with contextlib.suppress(cl.Error):  # the queue may be lost; the first error is the one to report
            self._finish()
        with contextlib.suppress(cl.Error):
            self._reset_faults()  # a node that still ran may have set one
            cl.enqueue_copy(self._queue, self._counter_buffer, self._counters)  # and some groups of a launch may have counted
        return as_dovetail(error, f"{where}, with {self._compiled.memory.peak} bytes of intermediate values")

    def _staged(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs in locked memory, where there is such; None for those that stay where they are."""
        for staging, given in zip(self._staging, inputs, strict=False):
            if staging is not None and given is not None:
                np.copyto(staging, given)
        return [s if a is not None else None for s, a in zip(self._staging, inputs, strict=True)] if self._staging else inputs

    def _finish(self) -> None:
        self._queue.finish()

    def _reset_faults(self) -> None:
        # From separate zeros: after a failure a download into the flags may still be under way.
        cl.enqueue_copy(self._queue, self._fault_buffer, np.zeros_like(self._faults))
        self._faults[:] = 0

    def _raise_fault(self) -> None:
        index = int(np.flatnonzero(self._faults)[0])
        with translated("resetting the fault flags"):
            self._reset_faults()
        node, message = self._compiled.faults[index]
        raise InferError(f"node {node}: {message}")


class InOrderRequest(CLRequest):
    """Commands run one after the other; no event is waited for but the last."""

    def __init__(self, compiled: CompiledGraph, create_profiled: Callable[[], ExecutableRequest] | None = None) -> None:
        super().__init__(compiled, create_profiled)
        self._calls: list[Callable[[], int]] = []
        self._staged_inputs: dict[Any, Staging] = {}

    def close(self) -> None:
        super().close()
        self._calls = []
        self._staged_inputs = {}

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        queue, copy = self._queue, cl.enqueue_copy
        # pyopencl waits for a copy whose event is dropped, so they are kept to the end.
        pairs = zip(inputs, self._uploads, strict=True)
        events = [event for a, b in pairs if b is not None and a is not None for event in self._upload(b, a)]
        self._in_parts(lambda first, last: self._launch(first, last, progress))
        progress[0] = len(self._calls)
        if self._compiled.faults:
            events.append(copy(queue, self._faults, self._fault_buffer, is_blocking=False))
        # A copy to pageable memory that waits in the queue of a GPU behind kernels is slower than one that finds them done. On
        # CPUs each wait takes 10 us and more.
        is_slow = self._compiled.has_own_memory and any(host.flags.owndata for host, _ in self._downloads)
        if self._keeps or not self._downloads or is_slow:
            queue.finish()
        for pair in self._to_read():
            copy(queue, *pair)

    def _upload(self, buffer: Any, array: NDArray[Any]) -> Sequence[Any]:
        """Enqueue the copy of an input; its events."""
        if array.nbytes < STAGED or not self._compiled.has_own_memory or self._staging:
            return (cl.enqueue_copy(self._queue, buffer, array, is_blocking=False),)
        if buffer not in self._staged_inputs:
            self._staged_inputs[buffer] = Staging(self._compiled.context, self._queue, array.nbytes)
        return self._staged_inputs[buffer].upload(buffer, array)

    def _launch(self, first: int, last: int, progress: list[int]) -> None:
        for index in range(first, last):
            if index == len(self._calls):  # the first run binds while the device computes
                if index == len(self._bound):
                    self._bind_next()
                self._calls += calls(self._queue, self._bound[index : index + 1])
            if self._calls[index]():
                progress[0] = index
                # Once more by pyopencl, which raises the error with its reason.
                one, global_size, local_size = self._bound[index]
                cl.enqueue_nd_range_kernel(self._queue, one.kernel, global_size, local_size)


class EventRequest(CLRequest):
    """Every command has an event.

    In a queue out of order it waits for those of its true producers, and of whoever used the memory that it overwrites.
    """

    def __init__(self, compiled: CompiledGraph, create_profiled: Callable[[], ExecutableRequest] | None = None) -> None:
        super().__init__(compiled, create_profiled)
        steps = len(self._uploads) + len(self._launches) + len(self._downloads)
        self._waits = compiled.waits() if compiled.out_of_order else ((),) * steps

    def _properties(self) -> Any:
        return cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE if self._compiled.out_of_order else 0

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        events = self._enqueue_each(inputs, progress)  # pyopencl waits for a copy whose event is dropped
        self._finish()
        del events
        if self._compiled.faults:
            cl.enqueue_copy(self._queue, self._faults, self._fault_buffer)

    def _enqueue_each(
        self, inputs: Sequence[NDArray[Any]], progress: list[int], before: Callable[[], Any] = lambda: None
    ) -> list[Any]:
        """Enqueue all steps and return their events; `before` is called before each."""
        events: list[Any] = []
        queue, copy, waits = self._queue, cl.enqueue_copy, iter(self._waits[len(self._uploads) + len(self._launches) :])
        for array, buffer in zip(inputs, self._uploads, strict=True):
            before()
            if buffer is None or array is None:
                events.append(cl.enqueue_marker(queue))
            else:
                events.append(copy(queue, buffer, array, is_blocking=False))
        self._in_parts(lambda first, last: self._launch(first, last, events, progress, before))
        progress[0] = len(self._launches)
        for pair in self._to_read():
            before()
            events.append(copy(queue, *pair, is_blocking=False, wait_for=[events[i] for i in next(waits)]))
        return events

    def _launch(self, first: int, last: int, events: list[Any], progress: list[int], before: Callable[[], Any]) -> None:
        queue, enqueue = self._queue, cl.enqueue_nd_range_kernel
        for index, (one, global_size, local_size) in enumerate(self._launches[first:last], first):
            progress[0] = index
            waits = self._waits[len(self._uploads) + index]
            before()
            events.append(
                enqueue(queue, one.kernel, global_size, local_size, None, [events[i] for i in waits] if waits else None)
            )


class DebugRequest(CLRequest):
    """Nodes run one after the other, and after each launch the guard bytes of its buffers are checked."""

    run_kept = ExecutableRequest.run_kept  # those of other requests are not

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__(compiled)
        self._touched = tuple(compiled.touched(command, self._buffers) for command in compiled.commands)
        self._written = tuple(compiled.written(command, self._buffers) for command in compiled.commands)

    def close(self) -> None:
        super().close()
        self._touched = self._written = ()

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        for array, buffer in zip(inputs, self._uploads, strict=True):
            if buffer is not None:
                cl.enqueue_copy(self._queue, buffer, array)
        budget = current_budget()
        for index, (one, global_size, local_size) in enumerate(self._launches):
            progress[0] = index
            if budget is not None:
                budget.check(f"node {self._compiled.commands[index].node}")
            cl.enqueue_nd_range_kernel(self._queue, one.kernel, global_size, local_size)
            self._queue.finish()
            self._check(index)
        progress[0] = len(self._launches)
        for pair in self._to_read():
            cl.enqueue_copy(self._queue, *pair)
        if self._compiled.faults:
            cl.enqueue_copy(self._queue, self._faults, self._fault_buffer)

    def _check(self, index: int) -> None:
        found = {}
        for what, buffer in self._touched[index]:
            for owner in (self._memory, self._compiled.buffers):
                damage = owner.damage(self._queue, buffer)
                if damage:
                    found[what] = damage
        command = self._compiled.commands[index]
        where = f"node {command.node}: the kernel {command.launch.entry!r} ({command.launch.file})"
        if found:
            said = "; ".join(f"{what}: {damage}" for what, damage in found.items())
            hint = "oclgrind names the line of the kernel and the work item"
            raise InferError(f"{where} wrote outside its buffers. {said}", hint=hint)
        for what, buffer, dtype in self._written[index]:
            missing = self._memory.unwritten(self._queue, buffer, dtype.numpy)
            if missing:
                raise InferError(f"{where} did not write {missing} elements of {what}", hint="see its global size")
