"""Each installed device under many threads and many runs, interrupted, and forked. One process for each where that matters."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.devices.work_budget import current_budget
from dovetail.graph import Model
from dovetail.op import Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.softmax import Softmax

Array = NDArray[Any]
SHAPE = (1, 3, 12, 11)
THREADS, REQUESTS = 16, 200
SOAK = int(os.environ.get("DOVETAIL_REQUESTS", "6400"))
"""Requests of 16 threads together."""

TIMEOUT = 600 + SOAK // 100
"""Seconds for a process."""

SLACK = 1 << 20
"""Bytes by which the resident memory may differ: the allocator's whim, a fraction of what a leak in each run would take."""


def network(middle: Operator | None = None) -> Model:
    """Two convolutions with a residual sum, pooling, and a classifier; `middle` is between the convolutions."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> Array:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", SHAPE)
    first = g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(some(8, 3, 3, 3)), g.constant(some(8)))
    value = g.node(Relu(), first) if middle is None else g.node(middle, first)
    value = g.node(Add(), g.node(Conv(pads=(1, 1, 1, 1)), value, g.constant(some(8, 8, 3, 3))), value)
    value = g.node(Flatten(), g.node(MaxPool(kernel_shape=(3, 3), strides=(3, 3)), value))
    value = g.node(Gemm(), value, g.constant(some(96, 10)), g.constant(some(10)))
    g.node(Softmax(), value, outputs=["y"])
    return g.model(["y"])


def data(count: int) -> Sequence[Array]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(SHAPE).astype(np.float32) for _ in range(count)]


def devices() -> list[str]:
    """The first device of each type."""
    return list({name.split(".")[0]: name for name in reversed(dovetail.Core(config=False).available_devices)}.values())


DEVICES = devices()


@pytest.mark.parametrize("device", DEVICES)
def test_threads_give_the_same_bits(device: str) -> None:
    """16 threads with 200 requests each on one compiled model."""
    compiled = dovetail.Core(config=False).compile_model(network(), device)
    xs = data(5)
    want = [np.array(compiled({"x": x})["y"]) for x in xs]
    together = threading.Barrier(THREADS)

    def work(thread: int) -> int:
        request = compiled.create_infer_request()
        together.wait(600)
        equal = 0
        for turn in range(REQUESTS):
            which = (thread + turn) % len(xs)
            equal += np.array_equal(request.infer({"x": xs[which]})["y"], want[which])
        return equal

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [REQUESTS] * THREADS


# --- in a process of their own --------------------------------------------------------------------------------------


def in_process(task: str, device: str) -> str:
    """The output of a function of this file in a fresh process. A hang fails, as does anything on stderr."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in (os.path.dirname(__file__), *sys.path) if p)}
    code = f"import {os.path.splitext(os.path.basename(__file__))[0]} as here; here.{task}({device!r})"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def print_growth_by_runs(device: str) -> None:
    """How many bytes more 10,000 runs take than 100."""
    compiled = dovetail.Core(config=False).compile_model(network(), device)
    (x,) = data(1)
    for _ in range(100):
        compiled({"x": x})
    before = resident()
    for _ in range(9900):
        compiled({"x": x})
    print(resident() - before)


def print_growth_by_compilations(device: str) -> None:
    """How many bytes more 300 models compiled, run and closed take than 100."""
    core, model = dovetail.Core(config=False), network()
    (x,) = data(1)
    before = 0
    for turn in range(300):
        if turn == 100:
            before = resident()
        with core.compile_model(model, device) as compiled:
            compiled({"x": x})
    print(resident() - before)


def held() -> tuple[int, int]:
    """How many threads and file descriptors this process has."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def print_soak(device: str) -> None:
    """Counts of the answers to 16 threads, the memory before, between and after both halves of their requests, and what is left.

    The first half fills what is kept.
    """
    core, model, xs = dovetail.Core(config=False), network(), data(5)
    with core.compile_model(model, device) as compiled:
        want = [np.array(compiled({"x": x})["y"]) for x in xs]
    before, memory, equal = held(), [], 0
    each = SOAK // THREADS // 2

    def work(thread: int) -> int:
        which = [(thread + turn) % len(xs) for turn in range(each)]
        return sum(np.array_equal(compiled({"x": xs[i]})["y"], want[i]) for i in which)

    with core.compile_model(model, device) as compiled:
        for _ in range(2):
            memory.append(resident())
            with ThreadPoolExecutor(THREADS) as pool:
                equal += sum(pool.map(work, range(THREADS)))
        memory.append(resident())
    until = time.monotonic() + 60
    while any(map(int.__gt__, held(), before)) and time.monotonic() < until:  # a thread that was joined is still ending
        time.sleep(0.1)
    left = [now - then for now, then in zip(held(), before, strict=True)]
    print(json.dumps({"wrong or missing": 2 * each * THREADS - equal, "memory": memory, "threads and descriptors left": left}))


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux tells a process its memory so")
@pytest.mark.parametrize("device", DEVICES)
def test_memory_does_not_grow_under_threads(device: str) -> None:
    """`DOVETAIL_REQUESTS=1600000 pytest -s` is the soak test: 16 threads with 10^5 requests each."""
    found = json.loads(in_process(print_soak.__name__, device))
    print(device, found)
    _, middle, after = found["memory"]
    assert found["wrong or missing"] == 0
    assert after - middle < 4 * SLACK
    assert max(found["threads and descriptors left"]) <= 0


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux tells a process its memory so")
@pytest.mark.parametrize("task", [print_growth_by_runs, print_growth_by_compilations])
@pytest.mark.parametrize("device", DEVICES)
def test_memory_does_not_grow(device: str, task: Any) -> None:
    assert int(in_process(task.__name__, device)) < SLACK


def print_what_a_fork_says(device: str) -> None:
    """`works`, or the error, of a child that uses what its parent compiled, in the background too, and compiles again."""
    core, model = dovetail.Core(config=False), network()
    compiled = core.compile_model(model, device)
    (x,) = data(1)
    want = np.array(compiled({"x": x})["y"])
    asynchronous = compiled.create_infer_request()
    asynchronous.start_async({"x": x})
    asynchronous.wait()
    child = os.fork()
    if not child:
        status = 1
        try:
            for make in (lambda: compiled, lambda: core.compile_model(model, device)):
                one = make()
                assert np.array_equal(one({"x": x})["y"], want)
                request = one.create_infer_request()
                request.start_async({"x": x})
                assert request.wait(600)
                assert np.array_equal(request.results["y"], want)
            print("works", flush=True)
            status = 0
        except dovetail.errors.DovetailError as error:
            print(error, flush=True)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(compiled({"x": x})["y"], want), "the parent goes on as before"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("device", DEVICES)
def test_a_forked_process_works_or_says_why_not(device: str) -> None:
    said = in_process(print_what_a_fork_says.__name__, device)
    assert said == "works" or "forked" in said


class Interrupts(Operator):
    """Passes X on; presses Ctrl+C once for each time that it was told to."""

    domain = "test"

    def __post_init__(self) -> None:
        object.__setattr__(self, "armed", [])

    def reference(self, X: Any) -> Any:
        if self.armed:
            self.armed.pop()
            signal.raise_signal(signal.SIGINT)
        return X


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("device", DEVICES)
def test_a_run_that_is_interrupted(device: str) -> None:
    """Ctrl+C in the middle of a run ends it with KeyboardInterrupt; the next run of the same request is right."""
    op = Interrupts()
    compiled = dovetail.Core(config=False).compile_model(network(op), device)
    op.armed.clear()
    (x,) = data(1)
    request = compiled.create_infer_request()
    want = np.array(request.infer({"x": x})["y"])
    for _ in range(3):
        op.armed.append(True)
        with pytest.raises(KeyboardInterrupt):
            request.infer({"x": x})
        np.testing.assert_array_equal(request.infer({"x": x})["y"], want)
    np.testing.assert_array_equal(compiled({"x": x})["y"], want)


class Holds(Operator):
    """Passes X on once `act` has returned."""

    domain = "test"

    def __post_init__(self) -> None:
        object.__setattr__(self, "act", lambda: None)

    def reference(self, X: Any) -> Any:
        self.act()
        return X


@pytest.fixture(params=DEVICES)
def held_run(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """A request of each device for the network with an operator in its middle, the operator, and the input."""
    op = Holds()
    compiled = dovetail.Core(config=False).compile_model(network(op), request.param, {"TIME_LIMIT": 3600})
    return compiled.create_infer_request(), op, data(1)[0]


def test_a_run_that_is_cancelled_ends_at_the_next_node(held_run: tuple[Any, Any, Any]) -> None:
    request, op, x = held_run
    want = np.array(request.infer({"x": x})["y"])
    entered, cancelled = threading.Event(), threading.Event()
    object.__setattr__(op, "act", lambda: entered.set() or cancelled.wait(60))
    request.start_async({"x": x})
    assert entered.wait(60)
    assert request.cancel()
    cancelled.set()
    with pytest.raises(dovetail.errors.RunCancelled, match="the run was cancelled at node"):
        request.wait()
    np.testing.assert_array_equal(request.infer({"x": x})["y"], want)


def test_a_run_past_its_time_limit_ends_at_the_next_node(held_run: tuple[Any, Any, Any]) -> None:
    request, op, x = held_run
    want = np.array(request.infer({"x": x})["y"])
    object.__setattr__(op, "act", lambda: setattr(current_budget(), "deadline", 0.0))
    with pytest.raises(dovetail.errors.TimeLimitExceeded, match="the time limit of 3600 seconds has passed"):
        request.infer({"x": x})
    object.__setattr__(op, "act", lambda: None)
    np.testing.assert_array_equal(request.infer({"x": x})["y"], want)
