"""The rules of the trace event format for the kinds of events that dovetail writes, and those of Perfetto's importer.

Perfetto's own program for reading traces, trace_processor_shell, is in no package index: the package `perfetto` of PyPI fetches
it from another server. From "Trace Event Format" (Google, 2016): the keys of each type of event; complete events of a thread are
nested; the parts of a flow have one category, name and id. From Perfetto's importer: a flow begins and ends within a slice of its
thread, or is left out.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

Event = Mapping[str, Any]

KEYS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "args"},
}
CLOSE = 1e-3
"""A nanosecond, in microseconds: what decimal fractions may be off by."""


def read(text: str) -> Sequence[Event]:
    """The events of a file in the format's object form."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    document = json.loads(text, parse_constant=refuse)
    assert document["displayTimeUnit"] in ("ms", "ns")
    found: Sequence[Event] = document["traceEvents"]
    return found


def check(found: Sequence[Event]) -> None:
    """Raise `AssertionError` with the event that breaks a rule."""
    assert any(event["ph"] == "X" for event in found)
    for event in found:
        _check_keys(event)
    _check_names(found)
    slices = [event for event in found if event["ph"] == "X"]
    for thread in {_thread(event) for event in slices}:
        _check_nested([event for event in slices if _thread(event) == thread])
    _check_flows(found, slices)
    _check_counters([event for event in found if event["ph"] == "C"])


def _thread(event: Event) -> tuple[int, int]:
    return event["pid"], event["tid"]


def _check_keys(event: Event) -> None:
    extra = {"tid"} if event["ph"] == "M" and event["name"].startswith("thread_") else set()
    assert event.keys() == KEYS[event["ph"]] | extra, event
    assert all(isinstance(event[key], str) and event[key] for key in ("name", "cat") if key in event), event
    assert all(type(event[key]) is int and event[key] > 0 for key in ("pid", "tid", "id") if key in event), event
    assert all(isfinite(event[key]) and event[key] >= 0 for key in ("ts", "dur") if key in event), event
    assert isinstance(event.get("args", {}), dict), event


def _check_names(found: Sequence[Event]) -> None:
    """Each process and thread has one name, and they differ."""
    named = [event for event in found if event["ph"] == "M"]
    assert {event["name"] for event in named} == {"process_name", "thread_name"}
    processes = Counter(event["pid"] for event in named if event["name"] == "process_name")
    threads = Counter(_thread(event) for event in named if event["name"] == "thread_name")
    assert {event["pid"] for event in found} == processes.keys()
    assert {_thread(event) for event in found if event["ph"] in "Xsf"} == threads.keys()
    assert max(processes.values()) == max(threads.values()) == 1
    titles = Counter((event.get("tid") and event["pid"], event["args"]["name"]) for event in named)
    assert max(titles.values()) == 1, titles


def _check_nested(slices: Sequence[Event]) -> None:
    """Slices of one thread are within each other or apart: of two that overlap the importer drops one."""
    open_ends: list[float] = []
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + CLOSE:
            open_ends.pop()
        assert not open_ends or event["ts"] + event["dur"] <= open_ends[-1] + CLOSE, event
        open_ends.append(event["ts"] + event["dur"])


def _check_flows(found: Sequence[Event], slices: Sequence[Event]) -> None:
    """Each flow has one start and one end, which is not before it and binds to the slice around it, as the start does."""
    starts = {event["id"]: event for event in found if event["ph"] == "s"}
    ends = {event["id"]: event for event in found if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) + len(ends) == sum(1 for event in found if event["ph"] in "sf")
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"]), (start, end)
        assert start["ts"] <= end["ts"], (start, end)
        assert end["bp"] == "e", end
    around = {thread: [e for e in slices if _thread(e) == thread] for thread in {_thread(e) for e in slices}}
    for event in (*starts.values(), *ends.values()):
        assert any(_holds(one, event) for one in around.get(_thread(event), ())), event


def _holds(one: Event, flow: Event) -> bool:
    return bool(one["ts"] <= flow["ts"] + CLOSE and flow["ts"] <= one["ts"] + one["dur"] + CLOSE)


def _check_counters(counters: Sequence[Event]) -> None:
    """Whole numbers under names that stay the same for a counter."""
    keys: dict[tuple[int, str], set[str]] = {}
    for event in counters:
        assert event["args"], event
        assert all(type(value) is int and value >= 0 for value in event["args"].values()), event
        assert keys.setdefault((event["pid"], event["name"]), set(event["args"])) == set(event["args"]), event


def broken() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Events of which one breaks a rule, with the name of the rule: each is refused by `check`."""
    place = {"pid": 1, "tid": 1}
    outer = {"ph": "X", "name": "outer", "cat": "run", "ts": 0.0, "dur": 9.0, "args": {}, **place}
    start = {"ph": "s", "name": "value", "cat": "flow", "id": 1, "ts": 1.0, **place}
    end = {"ph": "f", "name": "value", "cat": "flow", "id": 1, "ts": 2.0, "bp": "e", **place}
    counter = {"ph": "C", "name": "memory", "pid": 1, "ts": 1.0, "args": {"bytes": 3}}
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "host"}},
        {"ph": "M", "name": "thread_name", **place, "args": {"name": "main"}},
    ]
    whole = [outer, start, end, counter, *names]
    check(whole)

    def changed(event: Event, **changes: Any) -> list[dict[str, Any]]:
        return [{**one, **changes} if one is event else one for one in whole]

    yield "no slice", names
    yield "no duration", [{k: v for k, v in one.items() if k != "dur"} for one in whole]
    yield "phase", changed(outer, ph="B")
    yield "time before the beginning", changed(outer, ts=-1.0)
    yield "time that is not a number", changed(outer, dur=float("nan"))
    yield "process without a name", [*whole[:4], names[1]]
    yield "thread without a name", whole[:5]
    yield "two names", [*whole, {**names[0], "args": {"name": "other"}}]
    yield "two processes of one name", [*whole, {**names[0], "pid": 2}, {**counter, "pid": 2}]
    yield "overlap", [*whole, {**outer, "ts": 5.0}]
    yield "flow without an end", [one for one in whole if one is not end]
    yield "flow with two ends", [*whole, end]
    yield "flow of two names", changed(end, name="launch")
    yield "flow back in time", changed(end, ts=0.5)
    yield "flow to the next slice", changed(end, bp="")
    yield "flow from no slice", changed(outer, ts=1.5, dur=7.0)
    yield "flow to no slice", changed(end, ts=11.0)
    yield "counter of text", changed(counter, args={"bytes": "3"})
    yield "counter below zero", changed(counter, args={"bytes": -3})
    yield "counter that changes its keys", [*whole, {**counter, "args": {"elements": 3}}]
