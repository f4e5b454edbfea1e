"""Requests that record when each command ran, by the clock of the device."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import Mark, PartRecorder, Queued, clock
from dovetail_gpu_opencl.compiled import CompiledGraph
from dovetail_gpu_opencl.request import EventRequest

__all__ = ["ProfiledRequest", "offset_of"]


class ProfiledRequest(EventRequest):
    """Runs the commands in the queues and in the order of other requests, with an event for each."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__(compiled)
        self._recorder: PartRecorder | None = None
        graph = compiled.graph
        uploads = [name if name not in graph.states else f"{name}: nothing, it is kept" for name in graph.inputs]
        transfers = {"upload": uploads, "download": [root for root in compiled.downloads if root]}
        named = {what: [Mark("transfer", text=f"{what} {name}") for name in names] for what, names in transfers.items()}
        launches = [Mark("kernel", command.name) for command in compiled.commands]
        self._work = (*named["upload"], *launches, *named["download"])
        enqueued = [Mark("enqueue", mark.node, mark.text or f"enqueue {mark.node}") for mark in self._work]
        numbers = {id(queue): number for number, queue in enumerate(self._queues)}
        self._names = tuple(f"queue {numbers[id(queue)]}" for queue, _, _ in self._steps)
        self._marks = (*enqueued, Mark("wait", text="wait for the device"))

    def run_traced(self, inputs: Sequence[NDArray[Any]], recorder: PartRecorder) -> Sequence[NDArray[Any]]:
        """As `run`; `recorder` takes the marks."""
        self._recorder = recorder
        return self.run(inputs)

    def _properties(self) -> Any:
        return super()._properties() | cl.command_queue_properties.PROFILING_ENABLE

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        assert self._recorder is not None
        stamp = self._recorder.stamps.append
        if self._compiled.out_of_order or len(self._queues) > 1:
            events = self._enqueue_each(inputs, progress, lambda: stamp(clock()))
        else:
            events = self._enqueue_in_order(inputs, progress, stamp)
        stamp(clock())
        self._finish()
        if self._compiled.faults:
            cl.enqueue_copy(self._queue, self._faults, self._fault_buffer)
        stamp(clock())
        # The clock of the device is read when the trace is, not in the run.
        self._recorder.add(self._marks, partial(_queued, events, self._work, self._names))

    def _enqueue_in_order(self, inputs: Sequence[NDArray[Any]], progress: list[int], stamp: Callable[[int], object]) -> list[Any]:
        """As `_enqueue_each` for one queue in order, where no command waits for an event; takes half as long for each."""
        queue, copy = self._queue, cl.enqueue_copy
        events: list[Any] = []
        for array, buffer in zip(inputs, self._uploads, strict=True):
            stamp(clock())
            events.append(cl.enqueue_marker(queue) if buffer is None else copy(queue, buffer, array, is_blocking=False))
        self._in_parts(lambda first, last: self._launch_in_order(first, last, events, progress, stamp))
        progress[0] = len(self._launches)
        for pair in self._to_read():
            stamp(clock())
            events.append(copy(queue, *pair, is_blocking=False))
        return events

    def _launch_in_order(
        self, first: int, last: int, events: list[Any], progress: list[int], stamp: Callable[[int], object]
    ) -> None:
        queue, enqueue = self._queue, cl.enqueue_nd_range_kernel
        try:
            for kernel, global_size, local_size in self._launches[first:last]:
                stamp(clock())
                events.append(enqueue(queue, kernel, global_size, local_size))
        except cl.Error:
            progress[0] = len(events) - len(self._uploads)
            raise


def _queued(events: Sequence[Any], work: Sequence[Mark], queues: Sequence[str], stamps: Sequence[int]) -> list[Queued]:
    offset = offset_of([event.profile.queued for event in events], stamps)
    return [
        (queue, mark, event.profile.start + offset, event.profile.end + offset, index)
        for index, (event, mark, queue) in enumerate(zip(events, work, queues, strict=True))
    ]


def offset_of(queued: Sequence[int], stamps: Sequence[int]) -> int:
    """Nanoseconds to add to times of the device for those of the host.

    Command `i` was enqueued, at the device's time `queued[i]`, between `stamps[i]` and `stamps[i + 1]`: each bounds the offset on
    both sides. It is the middle of the narrowest bounds; clocks that run apart can leave these crossed by a little.
    """
    pairs = list(zip(queued, stamps, stamps[1:], strict=False))
    if not pairs:
        return 0
    return (max(before - at for at, before, _ in pairs) + min(after - at for at, _, after in pairs)) // 2
