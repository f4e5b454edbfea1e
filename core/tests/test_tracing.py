"""Recording of slices, apart from any device."""

import threading
from functools import partial
from types import SimpleNamespace

import pytest

from dovetail.graph import Node
from dovetail.phases import phase
from dovetail.tracing import Mark, PartRecorder, RunLog, Slice, Spans, Trace, by_node, current_trace
from dovetail_ops_onnx.relu import Relu

PLACED = SimpleNamespace(name="conv", origins=("conv", "relu"))


def test_nothing_is_recorded_outside_of_a_trace() -> None:
    assert current_trace() is None
    with phase("read", "read") as details:
        details["found"] = 3
    with Trace() as trace:
        assert current_trace() is trace
    assert trace.slices == ()
    assert current_trace() is None


def test_phases_nest_and_end_with_an_error() -> None:
    def work() -> None:
        with phase("outer", "compile", device="A"):
            with phase("inner", "prepare") as details:
                details["cache"] = "disk"
            raise ValueError("why")

    with Trace() as trace, pytest.raises(ValueError, match="why"):
        work()
    outer, inner = trace.slices
    assert (inner.name, inner.kind, inner.details) == ("inner", "prepare", {"cache": "disk"})
    assert (outer.name, outer.details) == ("outer", {"device": "A"})
    assert outer.start <= inner.start <= inner.end <= outer.end


def test_traces_may_be_nested() -> None:
    with Trace() as outer, phase("a", "read"):
        with Trace() as inner, phase("b", "read"):
            pass
        assert current_trace() is outer
    assert [one.name for one in inner.slices] == ["b"]
    assert [one.name for one in outer.slices] == ["a"]


def end(log: RunLog) -> None:
    """End a run that has no slices of its own."""
    log.entries.append(threading.current_thread().name)


def test_marks_become_slices_with_the_report_of_their_node() -> None:
    trace = Trace()
    log = RunLog(trace)
    recorder = PartRecorder(log, "DEV", {"conv": PLACED}, "loop/body")
    queued = [("queue 0", Mark("kernel", "conv"), 25, 29, 1)]
    with trace.slice("before", "bind"):
        pass
    # Those of a run that failed come first.
    recorder.stamps.extend([5, 6, 10, 12, 20])
    recorder.add([Mark("transfer", text="copy"), Mark("enqueue", "conv")], lambda stamps: queued if stamps[0] == 10 else [])
    assert [one.name for one in trace.slices] == ["before"]  # the run goes on
    end(log)
    copy, enqueue, kernel = trace.slices[:3]
    assert (copy.name, copy.start, copy.end, copy.placed, copy.caused_by) == ("copy", 10, 12, None, -1)
    assert (enqueue.name, enqueue.start, enqueue.end, enqueue.placed) == ("conv", 12, 20, PLACED)
    assert (kernel.track, kernel.start, kernel.end, kernel.path) == ("DEV queue 0", 25, 29, "loop/body")
    assert trace.slices[kernel.caused_by] == enqueue
    assert copy.run == kernel.run


def test_beyond_the_limit_runs_are_counted_and_dropped() -> None:
    trace = Trace(limit=3)
    log = RunLog(trace)
    recorder = PartRecorder(log, "DEV", {}, "")
    for start in (1, 4):
        recorder.stamps.extend(range(start, start + 3))
        recorder.add([Mark("wait")] * 2)
    end(log)
    with trace.slice("last", "bind"):
        pass
    assert [one.start for one in trace.slices][:2] == [1, 2]
    assert len(trace.slices) == 3
    assert [one for one in log.entries if isinstance(one, int)] == [1, 2, 3]
    assert trace.dropped == 2
    assert repr(trace) == "<Trace: 3 slices of threads, 2 dropped>"


def test_slices_of_a_run_that_comes_again() -> None:
    trace = Trace(limit=5)
    log, spans = RunLog(trace), Spans(partial(Slice, "outer", "request"), partial(Slice, "inner", "run", path="body"))
    for start in (30, 10, 50):
        log.end(spans, start, start + 9, start + 3, start + 5)
    found = [(one.name, one.kind, one.path, one.start, one.end, one.track) for one in trace.slices]
    assert found == [
        ("outer", "request", "", 10, 19, "MainThread"),
        ("inner", "run", "body", 13, 15, "MainThread"),
        ("outer", "request", "", 30, 39, "MainThread"),
        ("inner", "run", "body", 33, 35, "MainThread"),
    ]
    assert trace.dropped == 2


def test_parts_within_spans_take_their_own_times() -> None:
    """As in a Loop: the start of the node, two runs of its body, and the end of the node."""
    trace = Trace()
    log, host = RunLog(trace), Spans(partial(Slice, "loop", "host"))
    body = PartRecorder(log, "DEV", {}, "loop/body")
    log.entries.append(1)
    for start in (2, 5):
        body.stamps.extend((start, start + 1))
        body.add([Mark("kernel", "add")])
    log.entries += (9, host)
    end(log)
    assert [(one.name, one.start, one.end) for one in trace.slices] == [("loop", 1, 9), ("add", 2, 3), ("add", 5, 6)]


def test_a_run_that_fails_leaves_no_slices() -> None:
    trace = Trace()
    log = RunLog(trace)
    recorder = PartRecorder(log, "DEV", {}, "")
    for failed in (True, False):
        recorder.stamps.extend((1 + failed, 3))
        recorder.add([Mark("wait", text=f"failed: {failed}")])
        if failed:
            log.entries += [7, None]
    end(log)
    assert [(one.name, one.start) for one in trace.slices] == [("failed: False", 1)]


def test_calls_are_grouped_where_the_node_changes() -> None:
    first, second = (Node(name, Relu(), (name,), (f"{name}_out",)) for name in ("first", "second"))
    calls = [lambda value=value: value for value in "abcd"]
    found = by_node(calls, [first, first, second, first])
    assert [[call() for call in group] for group in found.groups] == [["a", "b"], ["c"], ["d"]]
    assert found.nodes == (first, second, first)
    assert [(mark.kind, mark.node) for mark in found.marks] == [
        ("transfer", ""),
        ("kernel", "first"),
        ("kernel", "second"),
        ("kernel", "first"),
    ]


def test_no_calls_are_no_group() -> None:
    found = by_node([], [])
    assert (found.groups, found.nodes, len(found.marks)) == ((), (), 1)
