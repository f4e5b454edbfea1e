"""Trace files in Chrome's trace event format, which Perfetto and chrome://tracing open."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.command import write_file
from dovetail.runtime import NodePlacement, Slice, Trace, ValuePlacement

__all__ = ["events", "save"]

Event = dict[str, Any]
Peaks = Mapping[str, tuple[float, float]]
"""Device -> the FLOPs and the bytes that it can do in a second."""

_HOST = "host"


def save(trace: Trace, path: Path, peaks: Peaks | None = None) -> None:
    """Write the trace as a JSON file that Perfetto opens. An existing file is replaced."""
    document = {"traceEvents": list(events(trace, peaks)), "displayTimeUnit": "ms", "otherData": {"dropped": trace.dropped}}
    write_file(path, json.dumps(document).encode())


def events(trace: Trace, peaks: Peaks | None = None) -> Iterator[Event]:
    """The events of the format, times in microseconds from the first slice.

    A process for the host's threads and one for the queues of each device; complete events (`X`) with the model's nodes, kernel,
    layouts, bytes and FLOPs; flows (`s`, `f`) from producer to consumer where a value changes the device, and from where a
    command was enqueued to where it ran; counters (`C`) of the memory that intermediate values use. With `peaks` each slice of a
    kernel has its share of the roofline. What a run takes between its slices is named `dovetail`.
    """
    slices = (*trace.slices, *_between(trace.slices))
    begin = min((one.start for one in slices), default=0)
    places = _Places()
    for one in slices:
        place = places.of(one)
        args = {**one.details, **_args(one, (peaks or {}).get(one.device))}
        yield {
            "ph": "X", "name": _title(one), "cat": one.kind, **place, "args": args,
            "ts": (one.start - begin) / 1e3, "dur": (one.end - one.start) / 1e3,
        }  # fmt: skip
    for number, (source, target) in enumerate(_flows(slices), 1):
        named = {"name": "value" if target.caused_by < 0 else "launch", "cat": "flow", "id": number}
        # A flow leaves within its source, and not after its end, which binds to the slice around it.
        leaves = max(source.start, min(source.end - 1, target.start))
        yield {"ph": "s", **named, **places.of(source), "ts": (leaves - begin) / 1e3}
        yield {"ph": "f", "bp": "e", **named, **places.of(target), "ts": (target.start - begin) / 1e3}
    for device, time, nbytes in _memory(slices):
        pid = places.process(device)
        yield {
            "ph": "C",
            "name": "memory of intermediate values",
            "pid": pid,
            "ts": (time - begin) / 1e3,
            "args": {"bytes": nbytes},
        }
    yield from places.names()


class _Places:
    """Numbers for processes and threads."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {_HOST: 1}
        self._threads: dict[tuple[int, str], int] = {}

    def process(self, name: str) -> int:
        return self._processes.setdefault(name, len(self._processes) + 1)

    def of(self, one: Slice) -> dict[str, int]:
        queue = one.device and one.track.startswith(f"{one.device} ")
        pid = self.process(one.device if queue else _HOST)
        track = one.track.removeprefix(f"{one.device} ") if queue else one.track
        return {"pid": pid, "tid": self._threads.setdefault((pid, track), len(self._threads) + 1)}

    def names(self) -> Iterator[Event]:
        for name, pid in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for (pid, name), tid in self._threads.items():
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _title(one: Slice) -> str:
    """The nodes of the model, `conv1 + relu1`: all of those that were merged into the one that ran."""
    if not isinstance(one.placed, NodePlacement) or one.kind not in ("kernel", "host"):
        return one.name
    origins = one.placed.origins or (one.placed.name,)
    shown = " + ".join(origins[:4]) + (f" + {len(origins) - 4} more" if len(origins) > 4 else "")
    return f"{one.path}/{shown}" if one.path else shown


def _args(one: Slice, peak: tuple[float, float] | None) -> dict[str, Any]:
    placed = one.placed
    if not isinstance(placed, NodePlacement):
        return {"device": one.device} if one.device else {}
    moved = sum(value.type.nbytes for value in (*placed.inputs, *placed.outputs))
    found: dict[str, Any] = {
        "nodes": list(placed.origins or (placed.name,)),
        "plan node": f"{one.path}/{placed.name}" if one.path else placed.name,
        "operator": placed.op,
        "device": placed.device,
        "kernel": placed.kernel,
        "package": placed.provider,
        "post-ops": list(placed.post_ops),
        "inputs": [_typed(value) for value in placed.inputs],
        "outputs": [_typed(value) for value in placed.outputs],
        "bytes": moved,
        "FLOPs": placed.flops,
    }
    seconds = (one.end - one.start) / 1e9
    if one.kind == "kernel" and seconds > 0:
        found["GB/s"] = round(moved / seconds / 1e9, 3)
        found["GFLOP/s"] = round((placed.flops or 0) / seconds / 1e9, 3)
        if peak is not None:
            found["share of roofline"] = round(max((placed.flops or 0) / peak[0], moved / peak[1]) / seconds, 4)
    return found


def _typed(value: ValuePlacement) -> str:
    return f"{value.name}: {value.type.dtype}{list(value.type.dims)} {value.type.layout}"


def _between(slices: tuple[Slice, ...]) -> Iterator[Slice]:
    """The gaps between the slices that are directly in a request, a run, or a node that runs sub-graphs."""
    by_track: dict[str, list[Slice]] = {}
    for one in slices:
        by_track.setdefault(one.track, []).append(one)
    for track, found in by_track.items():
        open_: list[tuple[Slice, int]] = []  # each slice around, with the end of the last one in it
        for one in sorted(found, key=lambda s: (s.start, -s.end)):
            while open_ and open_[-1][0].end <= one.start:
                yield from _gap(track, *open_.pop())
            if open_:
                outer, since = open_.pop()
                if one.start > since and outer.kind in _CONTAIN:
                    yield Slice("dovetail", "overhead", track, since, one.start)
                open_.append((outer, max(since, one.end)))
            open_.append((one, one.start))
        while open_:
            yield from _gap(track, *open_.pop())


_CONTAIN = ("request", "run", "host")


def _gap(track: str, outer: Slice, since: int) -> Iterator[Slice]:
    if outer.kind in _CONTAIN and outer.start < since < outer.end:
        yield Slice("dovetail", "overhead", track, since, outer.end)


def _flows(slices: tuple[Slice, ...]) -> Iterator[tuple[Slice, Slice]]:
    """Source and target of each arrow."""
    producers: dict[str, Slice] = {}
    latest: Slice | None = None
    for one in slices:
        if one.caused_by >= 0 and slices[one.caused_by].start <= one.start:
            yield slices[one.caused_by], one
        if one.kind not in ("kernel", "host") or not isinstance(one.placed, NodePlacement):
            continue
        begins = latest is None or (latest.placed, latest.run) != (one.placed, one.run)
        found = [producers.get(f"{one.path}/{value.name}") for value in one.placed.inputs] if begins else []
        for source in {id(s): s for s in found if s is not None}.values():
            # Clocks that are aligned to some microseconds can put a source behind its target.
            if source.device != one.device and source.start <= one.start:
                yield source, one
        for value in one.placed.outputs:
            producers[f"{one.path}/{value.name}"] = one
        latest = one


def _memory(slices: tuple[Slice, ...]) -> Iterator[tuple[str, int, int]]:
    """(device, time, bytes) at the start of each node: the blocks whose values are still to be read, or are being written."""
    parts: dict[int, list[Slice]] = {}
    for one in slices:
        if one.kind == "kernel" and isinstance(one.placed, NodePlacement):
            parts.setdefault(one.run, []).append(one)
    for part in parts.values():
        placed = [one.placed for one in part if isinstance(one.placed, NodePlacement)]
        last = {value.name: index for index, node in enumerate(placed) for value in (*node.inputs, *node.outputs)}
        blocks: dict[int, tuple[int, int]] = {}  # offset -> bytes, and the last step that uses them
        for index, (one, node) in enumerate(zip(part, placed, strict=True)):
            blocks = {offset: held for offset, held in blocks.items() if held[1] >= index}
            for value in (*node.inputs, *node.outputs):
                if value.offset is not None:
                    nbytes, until = blocks.get(value.offset, (0, 0))
                    blocks[value.offset] = max(nbytes, value.type.nbytes), max(until, last[value.name])
            yield one.device, one.start, sum(nbytes for nbytes, _ in blocks.values())
        if part:
            yield part[-1].device, part[-1].end, 0
