"""Recording of what reading, planning and running take, as slices of time."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Mark", "PartRecorder", "Placed", "Queued", "Slice", "Trace", "Tracks", "clock", "current_trace", "phase", "stamped"]

clock = time.perf_counter_ns
"""Nanoseconds, as an integer: the clock of every slice."""

_CURRENT: ContextVar["Trace | None"] = ContextVar("dovetail_trace", default=None)


class Placed(Protocol):
    """The report on a node as slices need it; `dovetail.runtime.NodePlacement` is one."""

    @property
    def name(self) -> str:
        """The name in the plan."""

    @property
    def origins(self) -> tuple[str, ...]:
        """The nodes of the model."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of work of a device: `kind` is `kernel`, `transfer`, `enqueue` or `wait`, `node` the node of the plan.

    `node` is empty for what is done for a whole part of a model, such as copying its inputs; `text` says what it is.
    """

    kind: str
    node: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of time from `start` to `end` (of `clock`) on a track, the name of a thread or of a queue of `device`.

    `placed` is the report on the node that ran, None for phases; `path` the sub-graphs that it is in, from outside to inside.
    `caused_by` is the index of the slice of the same trace that handed this work over, -1 for none. `run` numbers the runs of
    a part, and is 0 for phases.
    """

    name: str
    kind: str
    track: str
    start: int
    end: int
    device: str = ""
    placed: Placed | None = None
    path: str = ""
    caused_by: int = -1
    run: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


Queued = tuple[str, Mark, int, int, int]
"""A command of a queue: the queue's name, the mark, start and end in nanoseconds of `clock`, and the index of the mark of the
thread that enqueued it, -1 if none."""


@dataclass(frozen=True, slots=True)
class Tracks:
    """The marks of one run of a part: those of the thread, and those of the device's queues.

    `stamps` has the start of each mark of `marks` and the end of the last: on a thread one follows the other. `queued` is asked
    when the trace is read, for the commands of queues.
    """

    thread: str
    marks: Sequence[Mark]
    stamps: Sequence[int]
    queued: Callable[[], Sequence[Queued]] | None = None


class PartRecorder:
    """Takes what a device did in the runs of one part of a model. `placed` has the reports on its nodes, by name."""

    def __init__(self, trace: "Trace", device: str, placed: Mapping[str, Placed], path: str) -> None:
        self._trace = trace
        self.device, self.placed, self.path = device, placed, path

    def add(self, marks: Sequence[Mark], stamps: Sequence[int], queued: Callable[[], Sequence[Queued]] | None = None) -> None:
        """Keep the marks of a run; see `Tracks`. The sequences are not copied."""
        if len(marks) + 1 != len(stamps):
            raise ValueError(f"{len(marks)} marks need {len(marks) + 1} stamps, not {len(stamps)}")
        self._trace.keep(self, Tracks(threading.current_thread().name, marks, stamps, queued))


class Trace:
    """A record of phases and runs.

    In a `with` statement: what the thread reads, compiles and plans there, and all runs of the requests that are made there.
    `limit` bounds the slices of threads that are kept; `dropped` counts the others. Threads may share a trace.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._kept: list[Slice | tuple[PartRecorder, Tracks]] = []
        self._count = 0
        self.dropped = 0
        self._entered = threading.local()

    def __enter__(self) -> "Trace":
        outer: list[AbstractContextManager[None]] = self._entered.__dict__.setdefault("blocks", [])
        outer.append(self.recording())
        outer[-1].__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.blocks.pop().__exit__(*error)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """As the trace itself in a `with` statement, for code that several threads run."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def __repr__(self) -> str:
        return f"<Trace: {self._count} slices of threads, {self.dropped} dropped>"

    def keep(self, recorder: PartRecorder, tracks: Tracks) -> None:
        """Add the marks of a run, unless the limit is reached."""
        if self._has_room(len(tracks.marks)):
            self._kept.append((recorder, tracks))

    @contextmanager
    def slice(
        self, name: str, kind: str, placed: Placed | None = None, path: str = "", **details: Any
    ) -> Iterator[dict[str, Any]]:
        """Record the `with` statement as a slice. Gives its details, to which more can be added."""
        start = clock()
        try:
            yield details
        finally:
            if self._has_room(1):
                track = threading.current_thread().name
                self._kept.append(Slice(name, kind, track, start, clock(), placed=placed, path=path, details=details))

    def _has_room(self, count: int) -> bool:
        if self._count + count > self._limit:
            self.dropped += count
            return False
        self._count += count
        return True

    @property
    def slices(self) -> tuple[Slice, ...]:
        """All slices. Those of one thread are nested, or follow each other."""
        found: list[Slice] = []
        for number, kept in enumerate(tuple(self._kept), 1):
            found += [kept] if isinstance(kept, Slice) else _slices(*kept, number, len(found))
        return tuple(found)


def _slices(recorder: PartRecorder, tracks: Tracks, run: int, before: int) -> Iterator[Slice]:
    def one(mark: Mark, track: str, start: int, end: int, device: str, caused_by: int) -> Slice:
        placed = recorder.placed.get(mark.node)
        name = mark.text or mark.node
        return Slice(name, mark.kind, track, start, end, device, placed, recorder.path, caused_by, run)

    ends = tracks.stamps[1:]
    for mark, start, end in zip(tracks.marks, tracks.stamps, ends, strict=False):
        yield one(mark, tracks.thread, start, end, recorder.device, -1)
    for queue, mark, start, end, index in tracks.queued() if tracks.queued else ():
        yield one(mark, f"{recorder.device} {queue}", start, end, recorder.device, -1 if index < 0 else before + index)


def current_trace() -> Trace | None:
    """The trace of the `with` statement that the caller is in; None outside of one."""
    return _CURRENT.get()


def phase(name: str, kind: str, **details: Any) -> AbstractContextManager[dict[str, Any]]:
    """A `with` statement whose time the current trace records, if there is one; gives details to which more can be added."""
    trace = _CURRENT.get()
    return nullcontext({}) if trace is None else trace.slice(name, kind, **details)


def stamped(calls: Sequence[Callable[[], Any]], stamps: list[int]) -> tuple[Callable[[], Any], ...]:
    """The calls, with one before, between and after them that appends the time to `stamps`: `2 * len(calls) + 1` calls."""
    add = stamps.append

    def stamp() -> None:
        add(clock())

    return (stamp, *(step for call in calls for step in (call, stamp)))
