"""Requests that record when each command ran, by the clock of the device."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import Mark, PartRecorder, Queued, clock
from dovetail_gpu_opencl.compiled import CompiledGraph
from dovetail_gpu_opencl.request import EventRequest

__all__ = ["ProfiledRequest", "offset_of"]


class ProfiledRequest(EventRequest):
    """Runs the commands in a queue as that of other requests, which records the times of each."""

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
        events = self._enqueue_each(inputs, progress, lambda: stamp(clock()))
        stamp(clock())
        self._finish()
        if self._compiled.faults:
            cl.enqueue_copy(self._queue, self._faults, self._fault_buffer)
        stamp(clock())
        # The clock of the device is read when the trace is, not in the run.
        self._recorder.add(self._marks, partial(_queued, events, self._work))


def _queued(events: Sequence[Any], work: Sequence[Mark], stamps: Sequence[int]) -> list[Queued]:
    offset = offset_of([event.profile.queued for event in events], stamps)
    return [
        ("queue 0", mark, event.profile.start + offset, event.profile.end + offset, index)
        for index, (event, mark) in enumerate(zip(events, work, strict=True))
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
