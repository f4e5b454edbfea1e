"""Ctrl-C at any moment of a run leaves requests and queues that work."""

import linecache
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.devices import interruptible
from dovetail.errors import UsageError
from dovetail.op import FLOATS, Operator

TIMED = """
import signal, sys, time
import numpy as np
import dovetail
from dovetail.op import FLOATS, Operator

class AddOne(Operator):
    "X + 1."

    domain, inputs, types = "test", ("X: T",), {"T": FLOATS}

    def reference(self, X):
        return X + X.dtype.type(1)

g = dovetail.GraphBuilder()
model = g.model([g.node(AddOne(), g.input("x", "float32", ["N"]), outputs=["y"])])
compiled = dovetail.Core().compile_model(model, "NUMPY")

def run(count):
    np.testing.assert_array_equal(compiled(np.zeros(count, np.float32))["y"], 1)

signal.signal(signal.SIGALRM, signal.default_int_handler)
run(1), run(2), run(3)
times = []
for index in range(51):
    start = time.perf_counter()
    run(1 + index % 3)
    times.append(time.perf_counter() - start)
longest = 2 * sorted(times)[25]  # not the mean: while the machine is busy, single runs take a hundred times as long

interrupted = 0
for index in range(3000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + longest * ((index * 0.618034) % 1))
        run(1 + index % 3)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    for again in (1, 2):  # shapes that the request had, and others
        run(again)
assert interrupted > 100, interrupted
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no interval timers")
def test_a_signal_during_a_call_breaks_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TIMED)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


class AddOne(Operator):
    """X + 1."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def reference(self, X: Any) -> Any:
        return X + X.dtype.type(1)


@pytest.fixture
def compiled(toy_core: Any) -> dovetail.CompiledModel:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    made: dovetail.CompiledModel = core.compile_model(
        g.model([g.node(AddOne(), g.input("x", "float32", ["N"]), outputs=["y"])]), "A"
    )
    return made


class Interrupts:
    """Raises `KeyboardInterrupt` in this thread at the n-th line that is run in the `runtime` folder or `inside` others.

    Not where a `with` statement ends: Python handles no signal between the last line of the block and the release of a lock.
    """

    def __init__(self, number: int, *inside: str) -> None:
        self.left = number
        self._inside = ("dovetail/runtime", *inside)
        self._entered: set[tuple[int, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename.replace("\\", "/")
        if not any(part in file for part in self._inside):
            return None
        if event == "line" and not self._is_end_of_with(frame):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def _is_end_of_with(self, frame: FrameType) -> bool:
        place = id(frame), frame.f_lineno
        again = place in self._entered
        self._entered.add(place)
        return again and linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupted_everywhere(run: Callable[[], None], check: Callable[[], None], *inside: str) -> int:
    """Run again and again, each time interrupted one line later, until it comes to its end; the number of interrupts."""
    for number in range(1, 2000):
        interrupts = Interrupts(number, *inside)
        sys.settrace(interrupts)
        try:
            run()
        except KeyboardInterrupt:
            pass  # `check` says whether it did harm
        finally:
            sys.settrace(None)
        check()
        if interrupts.left > 0:
            return number - 1
    raise AssertionError("it does not come to its end")


def test_an_interrupt_at_any_line_of_a_call(compiled: dovetail.CompiledModel) -> None:
    def run() -> None:
        compiled(np.zeros(3, np.float32))

    def check() -> None:
        for count in (2, 3, 1):
            np.testing.assert_array_equal(compiled(np.zeros(count, np.float32))["y"], np.ones(count))

    assert interrupted_everywhere(run, check) > 20


def test_plans_take_no_lock_of_logging(compiled: dovetail.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in `getLogger` leaves it locked before Python 3.13; the next thread that asks for a logger waits for ever."""
    compiled(np.zeros(1, np.float32))
    with monkeypatch.context() as patch:
        patch.delattr(logging, "getLogger")
        compiled(np.zeros(2, np.float32))


class LongAddOne(AddOne):
    """X + 1, which counts as long."""

    def flops(self, inputs: Any, outputs: Any) -> int:
        return 10**12


# Interrupted in `Condition.wait`, `Thread.start` frees a lock that the new thread may hold by then, which ends there, in CPython.
@pytest.mark.filterwarnings("ignore:Exception ignored in thread started by.*dovetail-call::")
def test_an_interrupt_at_any_line_of_a_call_on_a_thread(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(LongAddOne(), g.input("x", "float32", ["N"]), outputs=["y"])])
    compiled: dovetail.CompiledModel = core.compile_model(model, "A")
    monkeypatch.setattr(interruptible, "_LONG", -1.0)

    def run() -> None:
        compiled(np.zeros(3, np.float32))

    def check() -> None:
        for count in (2, 3, 1):
            np.testing.assert_array_equal(compiled(np.zeros(count, np.float32))["y"], np.ones(count))

    assert interrupted_everywhere(run, check, "devices/interruptible", "/threading.py") > 60
    for thread in threading.enumerate():
        if thread.name == "dovetail-call" and thread.is_alive():  # others were interrupted before they began
            thread.join(10)
            assert not thread.is_alive()
    assert not interruptible.are_calls_left()


def test_an_interrupt_at_any_line_of_start_async(compiled: dovetail.CompiledModel) -> None:
    request = compiled.create_infer_request()

    def run() -> None:
        request.start_async(np.zeros(3, np.float32))

    def check() -> None:
        while request.is_running:  # a run that was submitted goes on
            time.sleep(0.001)
        request.start_async(np.zeros(2, np.float32))
        assert request.wait(10)
        np.testing.assert_array_equal(request.results["y"], [1, 1])

    assert interrupted_everywhere(run, check) > 15


def test_an_interrupt_while_a_worker_is_started() -> None:
    """In `ThreadPoolExecutor.submit`: the run is withdrawn, and the next one gets a worker."""
    core, g = dovetail.Core(), dovetail.GraphBuilder()
    model = g.model([g.node(AddOne(), g.input("x", "float32", ["N"]), outputs=["y"])])
    made = [core.compile_model(model, "NUMPY")]

    def run() -> None:
        made[0].create_infer_request().start_async(np.zeros(3, np.float32))

    def check() -> None:
        request = made[0].create_infer_request()
        request.start_async(np.zeros(2, np.float32))
        assert request.wait(10)
        np.testing.assert_array_equal(request.results["y"], [1, 1])
        made[0].close()
        with pytest.raises(UsageError, match="closed"):
            made[0](np.zeros(2, np.float32))
        made[0] = core.compile_model(model, "NUMPY")

    before = threading.active_count()
    assert interrupted_everywhere(run, check, "concurrent/futures/thread.py") > 40
    made[0].close()
    assert threading.active_count() <= before


def test_an_interrupt_at_any_line_of_a_queue(compiled: dovetail.CompiledModel) -> None:
    queue = dovetail.AsyncInferQueue(compiled, 1)
    answers: list[int] = []
    queue.set_callback(lambda request, userdata: answers.append(userdata))

    def run() -> None:
        queue.start_async(np.zeros(3, np.float32), 1)

    def check() -> None:
        queue.start_async(np.zeros(2, np.float32), 2)
        queue.wait_all()
        assert answers[-1] == 2
        assert queue.is_ready()

    assert interrupted_everywhere(run, check) > 25
