"""Provisional plans: what runs again is planned once more on a thread, and requests go over to that plan."""

import copy
import dataclasses
import gc
import logging
import threading
import weakref

import numpy as np
import pytest

from dovetail.device import DeviceInfo, current_budget
from dovetail.errors import CompileError, OutOfMemory, RunCancelled
from dovetail.graph import GraphBuilder
from dovetail.testing import ReferenceDevice, register_device
from dovetail.tracing import Trace
from dovetail.virtual import Composite, Targets, VirtualDevice
from dovetail_ops_onnx.neg import Neg

LIMIT = 60
"""Seconds after which a thread that should go on counts as hanging."""


class HurriedDevice(ReferenceDevice):
    """The first executable is final, as are those of `afresh`; others are provisional. Kernels are called as they are."""

    is_fresh = False
    compiling = staticmethod(lambda: None)
    """Called while an executable is made afresh."""
    creating = staticmethod(lambda: None)
    """Called while a request of such an executable is made."""

    def afresh(self):
        found = copy.copy(self)
        found.is_fresh = True
        return found

    def compile(self, graph, options):
        provisional = not self.is_fresh and bool(self.compiled)
        executable = super().compile(graph, options)
        executable.provisional = provisional
        kernel = "provisional" if provisional else "final"
        executable.reports = tuple(dataclasses.replace(report, kernel=kernel) for report in executable.reports)
        if self.is_fresh:
            self.compiling()
            inner = executable.create_request

            def create_request():
                self.creating()
                return inner()

            executable.create_request = create_request
        return executable


@pytest.fixture
def core(toy_core):
    core, _ = toy_core()
    register_device(core, DeviceInfo("H.0", "H", "CPU", "toy H"), HurriedDevice)
    return core


def model():
    """-x with N rows."""
    g = GraphBuilder()
    return g.model([g.node(Neg(), g.input("x", "float32", ("N", 2)))])


@pytest.fixture
def compiled(core):
    """The model, planned for one row."""
    compiled = core.compile_model(model(), "H")
    compiled(rows(1))
    return compiled


def rows(count):
    return np.arange(count * 2, dtype=np.float32).reshape(count, 2)


def kernel(compiled, count):
    (node,) = compiled.plans[((count, 2),)].nodes
    return node.kernel


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "dovetail-plan"]


def test_what_runs_once_is_not_planned_again(compiled):
    request = compiled.create_infer_request()
    for count in (2, 3, 4):
        np.testing.assert_array_equal(request.infer(rows(count))[0], -rows(count))
        assert kernel(compiled, count) == "provisional"
    assert kernel(compiled, 1) == "final"
    assert not threads()


def test_the_second_run_has_a_final_plan_made_that_requests_go_over_to(compiled):
    first, second = compiled.create_infer_request(), compiled.create_infer_request()
    for request in (first, second):
        request.infer(rows(2))
    compiled.finish_compiling()
    for request in (first, second, compiled.create_infer_request()):
        np.testing.assert_array_equal(request.infer(rows(2))[0], -rows(2))
    assert kernel(compiled, 2) == "final"
    assert first._bound.plan is second._bound.plan
    assert first._bound.plan.better is None


def test_finish_compiling_makes_plans_final_before_they_run_again(compiled):
    compiled.plan(((3, 2),))
    compiled.finish_compiling()
    assert kernel(compiled, 3) == "final"
    compiled.finish_compiling()  # nothing is left


def test_runs_go_on_while_the_plan_is_made(compiled, monkeypatch):
    going_on = threading.Event()
    monkeypatch.setattr(HurriedDevice, "compiling", staticmethod(lambda: going_on.wait(LIMIT)))
    request = compiled.create_infer_request()
    for _ in range(5):
        np.testing.assert_array_equal(request.infer(rows(2))[0], -rows(2))
    assert kernel(compiled, 2) == "provisional"
    assert len(threads()) == 1
    going_on.set()
    compiled.finish_compiling()
    request.infer(rows(2))
    assert kernel(compiled, 2) == "final"


def test_a_provisional_plan_stays_where_the_final_one_fails(compiled, monkeypatch, caplog):
    def fail():
        raise CompileError("the compiler is gone")

    monkeypatch.setattr(HurriedDevice, "compiling", staticmethod(fail))
    request = compiled.create_infer_request()
    request.infer(rows(2))
    with caplog.at_level(logging.WARNING, "dovetail"):
        compiled.finish_compiling()
    assert "a provisional plan, whose runs may be slower, stays in use: the compiler is gone" in caplog.text
    np.testing.assert_array_equal(request.infer(rows(2))[0], -rows(2))
    assert kernel(compiled, 2) == "provisional"


def test_a_provisional_plan_stays_where_no_thread_starts(compiled, monkeypatch, caplog):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    request = compiled.create_infer_request()
    with caplog.at_level(logging.WARNING, "dovetail"):
        for _ in range(4):
            np.testing.assert_array_equal(request.infer(rows(2))[0], -rows(2))
    assert caplog.text.count("stays in use: can't start new thread") == 1
    assert kernel(compiled, 2) == "provisional"
    compiled.finish_compiling()
    assert kernel(compiled, 2) == "final"


def test_a_request_stays_with_the_provisional_plan_where_there_is_no_memory_for_both(compiled, monkeypatch, caplog):
    def fail():
        raise OutOfMemory("no memory is left")

    request = compiled.create_infer_request()
    request.infer(rows(2))
    compiled.finish_compiling()
    monkeypatch.setattr(HurriedDevice, "creating", staticmethod(fail))
    for _ in range(2):
        np.testing.assert_array_equal(request.infer(rows(2))[0], -rows(2))
    assert caplog.text.count("stays in use: no memory is left") == 1


def test_closing_a_model_ends_the_thread(compiled, monkeypatch):
    began, ended = threading.Event(), []

    def wait():
        began.set()
        budget = current_budget()
        while True:
            try:
                budget.check("the next program")
            except RunCancelled:
                ended.append(budget.cancelled)
                raise

    monkeypatch.setattr(HurriedDevice, "compiling", staticmethod(wait))
    for _ in range(2):
        compiled(rows(2))
    assert began.wait(LIMIT)
    compiled.close()
    assert ended == [True]
    assert not threads()


def test_final_plans_are_made_one_after_the_other(compiled, core, monkeypatch):
    """A model that is closed does not wait for its turn."""
    began, going_on, running, most = threading.Event(), threading.Event(), [], []

    def compiling():
        running.append(True)
        most.append(len(running))
        began.set()
        going_on.wait(LIMIT)
        running.pop()

    monkeypatch.setattr(HurriedDevice, "compiling", staticmethod(compiling))
    other = core.compile_model(model(), "H")
    for count in (2, 3):
        for _ in range(2):
            compiled(rows(count))
        assert began.wait(LIMIT)  # it is the turn of a plan of this model
    for _ in range(2):
        other(rows(4))
    assert len(threads()) == 3
    other.close()
    assert len(threads()) == 2
    going_on.set()
    compiled.finish_compiling()
    assert [kernel(compiled, count) for count in (2, 3)] == ["final", "final"]
    assert most == [1, 1]


def test_no_final_plan_is_made_for_a_plan_that_left_the_cache(core, monkeypatch):
    began, going_on = threading.Event(), threading.Event()
    monkeypatch.setattr(HurriedDevice, "compiling", staticmethod(lambda: (began.set(), going_on.wait(LIMIT))))
    first, second = (core.compile_model(model(), "H", {"PLAN_CACHE": 1}) for _ in range(2))
    for compiled in (first, second):
        for count in (1, 2, 2):
            compiled(rows(count))
        assert began.wait(LIMIT)  # it is the turn of the first
    (_, waiting) = threads()
    second(rows(3))
    waiting.join(LIMIT)
    assert not waiting.is_alive()
    going_on.set()
    first.finish_compiling()
    assert kernel(first, 2) == "final"


def test_requests_that_record_go_over_too(compiled):
    trace = Trace(complete=True)
    with trace.recording():
        request = compiled.create_infer_request()
        request.infer(rows(2))
        compiled.finish_compiling()
        for _ in range(2):
            np.testing.assert_array_equal(request.infer(rows(2))[0], -rows(2))
    assert request._bound.plan.better is None
    assert request._bound._recorder.plan is request._bound.plan
    assert len([piece for piece in trace.slices if piece.kind == "run"]) == 3


def test_the_provisional_plan_is_freed(compiled):
    request = compiled.create_infer_request()
    request.infer(rows(2))
    executable = weakref.ref(request._bound.plan.steps[0].executable)
    compiled.finish_compiling()
    request.infer(rows(2))
    assert executable() is not None
    compiled.plan(((2, 2),))
    gc.collect()
    assert executable() is None


class Passing(VirtualDevice):
    """`PASSING`: H.0, after another one."""

    def targets(self, session, arguments, properties):
        return (Targets(("H.0",), properties, passed_over={"G.0": "switched off"}),)


class Alone(VirtualDevice, Composite):
    """`ALONE`: a model with one part."""

    def targets(self, session, arguments, properties):
        return (Targets(("H.0",), properties),)

    def compile(self, session, model, arguments, properties):
        found = copy.copy(self)
        found.part = session.compile(model, "H.0", properties)
        return found

    @property
    def parts(self):
        return (self.part,)

    def create_request(self):
        raise NotImplementedError


def test_parts_of_virtual_devices_are_finished(core, register_virtual):
    register_virtual(core, "ALONE", Alone())
    compiled = core.compile_model(model(), "ALONE")
    for count in (1, 2):
        compiled.plan(((count, 2),))
    assert kernel(compiled, 2) == "provisional"
    compiled.finish_compiling()
    assert kernel(compiled, 2) == "final"


def test_reports_of_final_plans_say_what_was_passed_over(core, register_virtual):
    register_virtual(core, "PASSING", Passing())
    compiled = core.compile_model(model(), "PASSING")
    for count in (1, 2):
        compiled(rows(count))
        assert compiled.report().passed_over == {"G.0": "switched off"}
    compiled.finish_compiling()
    assert kernel(compiled, 2) == "final"
    assert compiled.report().passed_over == {"G.0": "switched off"}
