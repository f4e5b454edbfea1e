"""Recording of what reading, planning and running take, as slices of time."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.graph.graph import Node
from dovetail.phases import CURRENT, clock
from dovetail.protocol import Protocol

__all__ = [
    "CallsByNode",
    "Mark",
    "PartRecorder",
    "Placed",
    "Queued",
    "RunLog",
    "Slice",
    "Spans",
    "Trace",
    "by_node",
    "current_trace",
]


class _Thread(threading.local):
    """The name of the calling thread: `threading.current_thread` takes twice as long."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name


_THREAD = _Thread()


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


class RunLog:
    """The times of one request, in the order in which they were read. Used by one thread at a time.

    `entries` has, for each part of a run, its times of `clock` and then whose they are: a `PartRecorder` with marks and `queued`,
    or `Spans`. The name of the thread ends a run; None ends one that failed. One list of integers, and no object for each run: to
    make objects, and to keep them, takes longer than a small node. `in_detail` is False in runs that are one slice.
    """

    def __init__(self, trace: "Trace") -> None:
        self.trace, self.in_detail = trace, True
        self.entries: list[Any] = []
        trace.logs.append(self)

    def end(self, spans: "Spans", *stamps: int) -> None:
        """Keep the start and the end of each of `spans`: the calling thread has ended a run."""
        trace, count = self.trace, spans.count
        if trace.count + count <= trace.limit:  # as `has_room`
            trace.count += count
            self.entries += (*stamps, spans, _THREAD.name)
        else:
            trace.dropped += count
            self.entries.append(_THREAD.name)

    def runs(self) -> Iterator[tuple[int, "_Record"]]:
        """When each part of the runs that have ended began, and its slices."""
        stamps: list[int] = []
        found: list[tuple[int, Callable[[str, int, int], Iterable[Slice]]]] = []
        entries = iter(self.entries.copy())
        for one in entries:
            if isinstance(one, int):
                stamps.append(one)
            elif isinstance(one, Spans):
                found += one.taken(stamps)
            elif isinstance(one, PartRecorder):
                found.append(one.taken(stamps, next(entries), next(entries)))
            else:
                yield from ((start, partial(record, one)) for start, record in found if one is not None)
                # A run that failed can have left stamps.
                stamps, found = [], []


class PartRecorder:
    """Takes what a device did in the runs of one part of a model. `placed` has the reports on its nodes, by name.

    A run appends times of `clock` to `stamps` and then calls `add`. Used by one thread at a time.
    """

    def __init__(self, log: RunLog, device: str, placed: Mapping[str, Placed], path: str) -> None:
        self._trace = log.trace
        self.device, self.placed, self.path = device, placed, path
        self.stamps: list[Any] = log.entries

    def apart(self) -> "PartRecorder":
        """One for a run that the log does not have yet: `stamps` are its own."""
        other = copy(self)
        other.stamps = []
        return other

    def add(self, marks: Sequence[Mark], queued: Callable[[Sequence[int]], Sequence[Queued]] | None = None) -> None:
        """Keep the run whose stamps are the last `len(marks) + 1`: the start of each mark, and the end of the last.

        On a thread one mark follows the other. `queued` is called with these stamps when the trace is read, for the commands of
        the device's queues.
        """
        stamps, trace, count = self.stamps, self._trace, len(marks)
        # As `has_room`, whose call would take as long as all of this.
        if trace.count + count <= trace.limit:
            trace.count += count
            stamps += (self, marks, queued)
        else:
            trace.dropped += count
            del stamps[-count - 1 :]

    def taken(self, stamps: list[int], marks: Sequence[Mark], queued: Any) -> tuple[int, Callable[..., Iterator[Slice]]]:
        """Take the stamps of a run from the end of a list: when it began, and its slices for thread, run and `before`."""
        mine = stamps[-len(marks) - 1 :]
        del stamps[-len(marks) - 1 :]
        return mine[0], partial(self._slices, marks, mine, queued)

    def _slices(
        self, marks: Sequence[Mark], stamps: Sequence[int], queued: Any, thread: str, run: int, before: int
    ) -> Iterator[Slice]:
        def one(mark: Mark, track: str, start: int, end: int, caused_by: int) -> Slice:
            placed, name = self.placed.get(mark.node), mark.text or mark.node
            return Slice(name, mark.kind, track, start, end, self.device, placed, self.path, caused_by, run)

        for mark, (start, end) in zip(marks, pairwise(stamps), strict=True):
            yield one(mark, thread, start, end, -1)
        for queue, mark, start, end, index in queued(stamps) if queued else ():
            yield one(mark, f"{self.device} {queue}", start, end, -1 if index < 0 else before + index)


class Spans:
    """Slices that come again with each run. `made` makes each of them from the name of a thread, a start and an end."""

    def __init__(self, *made: Callable[[str, int, int], Slice]) -> None:
        self.made, self.count = made, len(made)

    def taken(self, stamps: list[int]) -> list[tuple[int, Callable[..., tuple[Slice]]]]:
        """Take the start and the end of each from the end of a list: as `PartRecorder.taken`, for each slice."""
        mine = stamps[-2 * self.count :]
        del stamps[-2 * self.count :]
        return [(one[1], partial(_made, *one)) for one in zip(self.made, mine[::2], mine[1::2], strict=True)]


_Record = Callable[[int, int], Iterable[Slice]]
"""The slices of a run, given its number and that of the slices before it."""


def _only(one: Slice) -> _Record:
    return lambda run, before: (one,)


def _made(make: Callable[[str, int, int], Slice], start: int, end: int, thread: str, run: int, before: int) -> tuple[Slice]:
    return (make(thread, start, end),)


class Trace:
    """A record of phases and runs.

    In a `with` statement: what the thread reads, compiles and plans there, and all runs of the requests that are made there.
    `limit` bounds the slices of threads that are kept; `dropped` counts the others. Threads may share a trace. A request with
    many slices in little time has, after its first runs, only one slice for most of them; `complete` records all.
    """

    def __init__(self, limit: int = 1_000_000, complete: bool = False) -> None:
        self.limit, self.complete = limit, complete
        self._kept: list[Slice] = []
        self.logs: list[RunLog] = []
        self.count = 0
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
        token = CURRENT.set(self)
        try:
            yield
        finally:
            CURRENT.reset(token)

    def __repr__(self) -> str:
        return f"<Trace: {self.count} slices of threads, {self.dropped} dropped>"

    @contextmanager
    def slice(self, name: str, kind: str, **details: Any) -> Iterator[dict[str, Any]]:
        """Record the `with` statement as a slice. Gives its details, to which more can be added."""
        start = clock()
        try:
            yield details
        finally:
            self.keep(Slice(name, kind, _THREAD.name, start, clock(), details=details))

    def keep(self, one: Slice) -> None:
        """Add a slice, unless the limit is reached."""
        if self.has_room():
            self._kept.append(one)

    def has_room(self) -> bool:
        """Count a slice, as kept, or as dropped where the limit is reached."""
        if self.count >= self.limit:
            self.dropped += 1
            return False
        self.count += 1
        return True

    @property
    def slices(self) -> tuple[Slice, ...]:
        """All slices, in the order in which they, or the runs of parts of models, began. Those of one thread are nested, or
        follow each other."""
        records = [(one.start, _only(one)) for one in (*self._kept,)]
        records += [run for log in (*self.logs,) for run in log.runs()]
        found: list[Slice] = []
        for number, (_, record) in enumerate(sorted(records, key=itemgetter(0)), 1):
            found += record(number, len(found))
        return tuple(found)


def current_trace() -> Trace | None:
    """The trace of the `with` statement that the caller is in; None outside of one."""
    found: Trace | None = CURRENT.get()
    return found


@dataclass(frozen=True, slots=True)
class CallsByNode:
    """Calls by node: `groups[i]` are those of `nodes[i]`. `marks` are the copying of inputs, and then the nodes."""

    groups: tuple[tuple[Callable[[], Any], ...], ...]
    nodes: tuple[Node, ...]
    marks: tuple[Mark, ...]


def by_node(calls: Sequence[Callable[[], Any]], nodes: Sequence[Node]) -> CallsByNode:
    """Group calls, each of which belongs to a node, in their order."""
    found = [[*pairs] for _, pairs in groupby(zip(calls, nodes, strict=True), lambda pair: id(pair[1]))]
    owners = tuple(pairs[0][1] for pairs in found)
    marks = (Mark("transfer", text="copy the inputs"), *(Mark("kernel", node.name) for node in owners))
    return CallsByNode(tuple(tuple(call for call, _ in pairs) for pairs in found), owners, marks)
