"""Recording of slices, apart from any device."""

from types import SimpleNamespace

import pytest

from dovetail.graph import Node
from dovetail.tracing import Mark, PartRecorder, SpanRecorder, Trace, by_node, current_trace, phase
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


def test_marks_become_slices_with_the_report_of_their_node() -> None:
    trace = Trace()
    recorder = PartRecorder(trace, "DEV", {"conv": PLACED}, "loop/body")
    queued = [("queue 0", Mark("kernel", "conv"), 25, 29, 1)]
    with trace.slice("before", "bind"):
        pass
    # Those of a run that failed come first.
    recorder.stamps.extend([5, 6, 10, 12, 20])
    recorder.add([Mark("transfer", text="copy"), Mark("enqueue", "conv")], lambda stamps: queued if stamps[0] == 10 else [])
    copy, enqueue, kernel = trace.slices[:3]
    assert (copy.name, copy.start, copy.end, copy.placed, copy.caused_by) == ("copy", 10, 12, None, -1)
    assert (enqueue.name, enqueue.start, enqueue.end, enqueue.placed) == ("conv", 12, 20, PLACED)
    assert (kernel.track, kernel.start, kernel.end, kernel.path) == ("DEV queue 0", 25, 29, "loop/body")
    assert trace.slices[kernel.caused_by] == enqueue
    assert copy.run == kernel.run


def test_beyond_the_limit_runs_are_counted_and_dropped() -> None:
    trace = Trace(limit=3)
    recorder = PartRecorder(trace, "DEV", {}, "")
    for start in (1, 4):
        recorder.stamps.extend(range(start, start + 3))
        recorder.add([Mark("wait")] * 2)
    with trace.slice("last", "bind"):
        pass
    assert [one.start for one in trace.slices][:2] == [1, 2]
    assert len(trace.slices) == 3
    assert recorder.stamps == [1, 2, 3]
    assert trace.dropped == 2
    assert repr(trace) == "<Trace: 3 slices of threads, 2 dropped>"


def test_slices_of_a_run_that_comes_again() -> None:
    trace = Trace(limit=5)
    recorder = SpanRecorder(trace, ("outer", "request"), ("inner", "run"))
    for start in (30, 10, 50):
        recorder.add(start, start + 9, start + 3, start + 5)
    found = [(one.name, one.kind, one.start, one.end) for one in trace.slices]
    assert found == [
        ("outer", "request", 10, 19),
        ("inner", "run", 13, 15),
        ("outer", "request", 30, 39),
        ("inner", "run", 33, 35),
    ]
    assert trace.dropped == 2


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
