"""Planning pauses the garbage collector, and leaves it as it was."""

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import ShapeError
from dovetail.graph import GraphBuilder, Model
from dovetail.op import FLOATS, Operator
from dovetail.planning.collector import CollectorPause
from dovetail.runtime import infer_request

SEEN: list[bool] = []


class Watch(Operator):
    """Notes whether the collector is on while it is planned."""

    domain = "test.collector"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def infer(self, x):  # type: ignore[no-untyped-def]
        SEEN.append(gc.isenabled())
        if x.dims[0] == 13:
            raise ShapeError("13 rows")
        return x

    def reference(self, x):  # type: ignore[no-untyped-def]
        return x


@pytest.fixture(params=[True, False])
def collects(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_it_is_off_while_a_shape_is_planned_and_then_as_before(collects: bool) -> None:
    g = GraphBuilder()
    model = g.model([g.node(Watch(), g.input("x", "float32", ("N", 2)))])
    with dovetail.Core(config=False).compile_model(model, "NUMPY") as compiled:
        SEEN.clear()
        compiled({"x": np.zeros((3, 2), np.float32)})
        with pytest.raises(ShapeError, match="13 rows"):
            compiled({"x": np.zeros((13, 2), np.float32)})
    assert SEEN
    assert not any(SEEN)
    assert gc.isenabled() is collects


def test_it_is_off_while_a_request_is_bound_to_a_new_plan(monkeypatch: pytest.MonkeyPatch, collects: bool) -> None:
    seen: list[bool] = []

    def bound(*given: Any, **named: Any) -> Any:
        seen.append(gc.isenabled())
        return make(*given, **named)

    make = infer_request.PlanRequest
    monkeypatch.setattr(infer_request.InferRequest, "_bind", lambda self, plan: bound(plan))
    g = GraphBuilder()
    model = g.model([g.node(Watch(), g.input("x", "float32", ("N", 2)))])
    with dovetail.Core(config=False).compile_model(model, "NUMPY") as compiled:
        request = compiled.create_infer_request()
        for rows in (3, 5):
            request.infer({"x": np.zeros((rows, 2), np.float32)})
    assert seen == [False, False]
    assert gc.isenabled() is collects


def test_it_is_off_while_a_model_is_read_and_opened(monkeypatch: pytest.MonkeyPatch, collects: bool) -> None:
    core, seen = dovetail.Core(config=False), dict[str, bool]()
    g = GraphBuilder()
    model = g.model([g.node(Watch(), g.input("x", "float32", ("N", 2)))])

    def read(*_: object) -> Model:
        seen["read"] = gc.isenabled()
        return model

    def prepared(*given: Any) -> Any:
        seen["open"] = gc.isenabled()
        return prepare(*given)

    prepare = core.prepare
    monkeypatch.setattr(core.plugins, "read_model", read)
    monkeypatch.setattr(core, "prepare", prepared)
    core.compile_model(core.read_model(b"content", "none"), "NUMPY").close()
    assert seen == {"read": False, "open": False}
    assert gc.isenabled() is collects


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="without the GIL there are no generations")
@pytest.mark.parametrize(("imports", "count"), [(True, 20_000), (False, 20_000), (False, 60_000)])
def test_what_is_made_with_modules_or_in_great_number_is_old_afterwards(imports: bool, count: int) -> None:
    """Else the next collection would look at all of it. A few objects without imports may be garbage soon."""
    code = f"""
import gc
from dovetail.planning.collector import CollectorPause
with CollectorPause():
    made = [[] for _ in range({count})]
    {"import this" if imports else ""}
    gc.set_threshold(10**6)
print(len(gc.get_objects(generation=0)) < {count})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == str(imports or count > 50_000)


def test_what_was_frozen_stays() -> None:
    """As in a process that forks workers."""
    code = """
import gc
from dovetail.planning.collector import CollectorPause
gc.freeze()
frozen = gc.get_freeze_count()
with CollectorPause():
    import this
print(gc.get_freeze_count() == frozen > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True"


def test_what_the_interpreter_has_frozen_is_not_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12.1 begins with 375 frozen objects."""
    frozen = list[bool]()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    was_on = gc.isenabled()
    gc.enable()
    try:
        with CollectorPause():
            monkeypatch.setitem(sys.modules, "kept_too", sys)
    finally:
        (gc.enable if was_on else gc.disable)()
    assert frozen == [True]


def test_pauses_of_several_threads_end_with_the_last(collects: bool) -> None:
    pause, inside, leave = CollectorPause(), threading.Event(), threading.Event()

    def other() -> None:
        with pause:
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with pause:
        thread.start()
        assert inside.wait(30)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled() is collects


def test_a_forked_process_collects(collects: bool) -> None:
    pause = CollectorPause()
    pause.__enter__()
    pause.forget()  # in the child, where the thread that paused is not
    assert gc.isenabled() is collects
    with pause:
        assert not gc.isenabled()
    assert gc.isenabled() is collects
