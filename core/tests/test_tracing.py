"""Recording of slices, apart from any device."""

from types import SimpleNamespace

import pytest

from dovetail.tracing import Mark, PartRecorder, Trace, clock, current_trace, phase, stamped

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
    inner, outer = trace.slices
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
    recorder.add([Mark("transfer", text="copy"), Mark("enqueue", "conv")], [10, 12, 20], lambda: queued)
    copy, enqueue, kernel = trace.slices[1:]
    assert (copy.name, copy.start, copy.end, copy.placed, copy.caused_by) == ("copy", 10, 12, None, -1)
    assert (enqueue.name, enqueue.start, enqueue.end, enqueue.placed) == ("conv", 12, 20, PLACED)
    assert (kernel.track, kernel.start, kernel.end, kernel.path) == ("DEV queue 0", 25, 29, "loop/body")
    assert trace.slices[kernel.caused_by] == enqueue
    assert copy.run == kernel.run


def test_marks_and_stamps_must_fit() -> None:
    with pytest.raises(ValueError, match="2 marks need 3 stamps, not 2"):
        PartRecorder(Trace(), "DEV", {}, "").add([Mark("wait"), Mark("wait")], [1, 2])


def test_beyond_the_limit_runs_are_counted_and_dropped() -> None:
    trace = Trace(limit=3)
    recorder = PartRecorder(trace, "DEV", {}, "")
    recorder.add([Mark("wait")] * 2, [1, 2, 3])
    recorder.add([Mark("wait")] * 2, [4, 5, 6])
    with trace.slice("last", "bind"):
        pass
    assert [one.start for one in trace.slices][:2] == [1, 2]
    assert len(trace.slices) == 3
    assert trace.dropped == 2
    assert repr(trace) == "<Trace: 3 slices of threads, 2 dropped>"


def test_stamps_before_between_and_after_calls() -> None:
    stamps: list[int] = []
    made: list[str] = []
    before = clock()
    for call in stamped([lambda: made.append("a"), lambda: made.append("b")], stamps):
        call()
    assert made == ["a", "b"]
    assert len(stamps) == 3
    assert before <= stamps[0] <= stamps[1] <= stamps[2] <= clock()
    assert len(stamped([], stamps)) == 1
