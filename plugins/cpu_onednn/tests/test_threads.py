"""Threads: each request runs with its own number of them, oneDNN's calls let other threads go on, and forks are not a trap."""

import itertools
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dovetail
from dovetail.device import TypedNode
from dovetail.op import Operator
from dovetail_cpu_onednn.binding import Onednn
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import aligned
from dovetail_cpu_onednn.reorder import ALONE, moved
from dovetail_cpu_onednn.threads import sharers, worth_sharing
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.tanh import Tanh


class Counted(Operator):
    """x plus the number of threads that OpenMP has for the thread that runs it."""

    domain = "test.threads"

    def reference(self, X):
        return X + np.float32(library()._cdll.omp_get_max_threads())


def test_each_request_has_its_number_of_threads():
    """The number belongs to the calling thread, so requests of two models on one pool have to set it each time."""
    core, g = dovetail.Core(config=False), dovetail.GraphBuilder()
    data = np.zeros(1 << 20, np.float32)  # so much that threads share the work
    model = g.model([g.node(Counted(), g.input("x", "float32", data.shape))])
    counts = (1, 3, 2)
    compiled = [core.compile_model(model, "ONEDNN", {"INFERENCE_NUM_THREADS": count}) for count in counts]

    def work(turn):
        return compiled[turn % 3]({"x": data})[0][0], counts[turn % 3]

    with ThreadPoolExecutor(4) as pool:
        assert all(got == want for got, want in pool.map(work, range(120)))
    requests = [c.create_infer_request() for c in compiled for _ in range(2)]
    for request, want in itertools.islice(itertools.cycle(zip(requests, np.repeat(counts, 2), strict=True)), 24):
        request.start_async({"x": data})
        request.wait()
        assert request.results[0][0] == want


def _products(widths):
    """A model of matrix products from 64 rows of one width to the next, its input, and its output in float64."""
    rng, g = np.random.default_rng(0), dovetail.GraphBuilder()
    x = rng.standard_normal((64, widths[0])).astype(np.float32)
    value, expected = g.input("x", "float32", x.shape), x.astype(np.float64)
    for width, following in itertools.pairwise(widths):
        weights = rng.standard_normal((width, following)).astype(np.float32) / np.float32(width**0.5)
        value, expected = g.node(MatMul(), value, g.constant(weights)), expected @ weights
    return g.model([value]), x, expected


@pytest.mark.parametrize(
    ("widths", "threads", "set_in_a_run"),
    [
        ((16, 8, 4), (1, 1), [1, 2]),  # no node is worth sharing
        ((224, 224), (1,), [1, 2]),  # the node is, but not the plan
        ((400, 400), (2,), [2]),
        ((400, 400, 1), (2, 1), [2, 1, 2]),
        ((400, 400, 1, 400, 400), (2, 1, 1, 2), [2, 1, 2]),
    ],
)
def test_work_too_small_to_share_runs_on_one_thread(widths, threads, set_in_a_run, monkeypatch):
    """Primitives are made for the threads that their work is worth. The number changes between them, and is reset at the end."""
    (model, x, expected), lib, found = _products(widths), library(), []
    set_threads = lib._set_threads

    def record(count):
        found.append(count)
        set_threads(count)

    monkeypatch.setattr(lib, "_set_threads", record)
    with dovetail.Core(config=False).compile_model(model, "ONEDNN", {"INFERENCE_NUM_THREADS": 2}) as compiled:
        (step,) = compiled.plan((x.shape,)).steps
        request = compiled.create_infer_request()
        request.infer({"x": x})
        found.clear()
        np.testing.assert_allclose(request.infer({"x": x})[0], expected, rtol=1e-4, atol=1e-4)
        notes = compiled.report().notes
    assert tuple(p.threads for p in step.executable.placements) == threads
    assert found == set_in_a_run
    alone = f"{threads.count(1)} of {len(threads)} nodes run on one thread"
    assert notes == ((f"ONEDNN: {alone}, because their work is too small for 2",) if 1 in threads else ())


def test_the_more_threads_the_less_work_is_worth_sharing():
    """Two threads save half of the time, sixteen nearly all of it; each step of a recurrence has to be worth it."""
    assert [sharers(3_000, 1, threads) for threads in (1, 2, 3, 16)] == [1, 1, 3, 16]
    assert [sharers(30_000, barriers, 2) for barriers in (0, 1, 7, 8)] == [2, 2, 2, 1]


@pytest.mark.parametrize(
    ("op", "gates", "sizes", "threads"),
    [
        (LSTM, 4, (60, 1, 128), 1),
        (LSTM, 4, (60, 4, 128), 1),
        (LSTM, 4, (60, 16, 128), 2),
        (LSTM, 4, (60, 1, 512), 2),
        (GRU, 3, (60, 8, 128), 1),
        (GRU, 3, (60, 1, 512), 2),
    ],
)
def test_steps_of_recurrences_that_threads_share(op, gates, sizes, threads):
    """Threads meet several times in each step: behind the products of the gates, and behind what is made of these."""
    steps, batch, hidden = sizes
    g = dovetail.GraphBuilder()
    weights = [g.constant(np.zeros((1, gates * hidden, hidden), np.float32), name=name) for name in ("w", "r")]
    x = g.input("x", "float32", (steps, batch, hidden))
    model = g.model([g.node(op(), x, *weights, outputs=["y"])])
    with dovetail.Core(config=False).compile_model(model, "ONEDNN", {"INFERENCE_NUM_THREADS": 2}) as compiled:
        (step,) = compiled.plan(((steps, batch, hidden),)).steps
        assert [p.threads for p in step.executable.placements] == [threads]


@pytest.mark.parametrize(
    ("works", "threads"),
    [
        ([90], 1),
        ([110], 2),
        ([110] + [1] * 50, 2),
        ([110] + [1] * 80, 1),  # other threads would save less than a third
        ([900] + [1] * 5000, 2),
        ([1] * 5000, 1),
    ],
)
def test_plans_that_are_worth_waking_threads(works, threads):
    assert worth_sharing([(1000 * work, 1) for work in works], 2) == threads


def test_the_gil_is_released(bench):
    """While one primitive runs, another thread counts. With the switch interval far away it can do so only without the GIL."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 1024, 1024)).astype(np.float32) for _ in range(2)]
    graph = bench.single(MatMul(), arrays)[0]
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel != "ref"
    request = bench.executable(graph).create_request()
    kept = request.run(arrays)  # the array into which the call writes
    library().set_threads(1)
    ticks, done = [0], threading.Event()

    def count():
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0)

    (call,) = request._bound.calls
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    try:
        sys.setswitchinterval(1000)
        thread.start()
        for _ in range(200):  # on a busy machine the other thread may get no CPU during one call
            before = ticks[0]
            assert call() == 0
            if counted := ticks[0] > before:
                break
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert counted
    assert kept


def test_short_primitives_keep_the_gil(bench):
    """Short calls would lose more by giving it back than they take: other threads get it between them."""
    execute = {True: library()._execute_holding, False: library()._execute}
    for size in (16, 1024):
        arrays = [np.ones((1, size, size), np.float32)] * 2
        request = bench.executable(bench.single(MatMul(), arrays)[0]).create_request()
        (call,) = request._bound.calls
        assert call.func is execute[size == 16]


def test_tiny_networks_in_many_threads():
    """Each thread has results of its own inputs, whoever holds the GIL when."""
    g = dovetail.GraphBuilder()
    value = g.input("x", "float32", (1, 16))
    weights = np.random.default_rng(6).standard_normal((4, 16, 16)).astype(np.float32) / 4
    for matrix in weights:
        value = g.node(Tanh(), g.node(MatMul(), value, g.constant(matrix)))
    rows = np.random.default_rng(7).standard_normal((8, 1, 16)).astype(np.float32)
    expected = rows.astype(np.float64)
    for matrix in weights:
        expected = np.tanh(expected @ matrix)
    wrong: list[float] = []

    def work(index: int) -> None:
        for _ in range(300):
            (found,) = model([rows[index]]).values()
            if not np.allclose(found, expected[index], rtol=1e-5, atol=1e-6):
                wrong.append(index)

    with dovetail.Core() as core, core.compile_model(g.model([value]), "ONEDNN") as model:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(rows))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


FORK = """
import os, sys
import numpy as np
import dovetail
from dovetail_cpu_onednn.binding import Onednn
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import aligned
from dovetail_cpu_onednn.reorder import ALONE, moved
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.mat_mul import MatMul

core, g = dovetail.Core(config=False), dovetail.GraphBuilder()
x = g.input("x", "float32", (512, 512))
model = g.model([g.node(MatMul(), x, x, outputs=["y"])])
data = np.eye(512, dtype=np.float32)
options = {"INFERENCE_NUM_THREADS": int(sys.argv[1])}
when = sys.argv[2]
early = when == "early"
if when == "orphan":  # as OpenMP before 5.0
    library()._end_team = None
compiled = None if early else core.compile_model(model, "ONEDNN", options)
if early:
    core.available_devices
else:
    compiled({"x": data})
if (child := os.fork()) == 0:
    try:
        again = core.compile_model(model, "ONEDNN", options)
        for one in (again,) if early else (compiled, again):
            request = one.create_infer_request()
            request.start_async({"x": data})
            request.wait()
            assert (request.results["y"] == data).all()
        print("works", flush=True)
    except dovetail.errors.DovetailError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
if not early:
    assert (compiled({"x": data})["y"] == data).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("threads", "when", "says"),
    [
        (1, "late", "works"),
        (2, "late", "works"),
        (1, "orphan", "works"),
        (2, "orphan", "this process was forked from one in which oneDNN had worked with several threads"),
        (2, "early", "works"),
    ],
)
def test_fork(threads, when, says):
    """A child runs, with its own threads, or says why it cannot and what to do; it never waits for those of its parent."""
    env = {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, str(threads), when]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout
    assert says == "works" or "INFERENCE_NUM_THREADS=1" in done.stdout


PRODUCT = """
import os, sys, threading
import numpy as np
import dovetail
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.relu import Relu
made = []
start = threading.Thread.start
threading.Thread.start = lambda self: (made.append(self.name), start(self))[1]
g = dovetail.GraphBuilder()
x = g.input("x", "float32", (5, 3, 7))
weights = [g.constant(np.ones((1, 33, n), np.float32)) for n in (7, 11)]
op = GRU(hidden_size=11) if sys.argv[2] == "gru" else Relu()
g.node(op, x, *(weights if sys.argv[2] == "gru" else ()), outputs=["y"])
model = g.model(["y"])
options = {"INFERENCE_NUM_THREADS": int(sys.argv[1])}
core, data = dovetail.Core(config=False), np.ones((5, 3, 7), np.float32)
compiled = core.compile_model(model, "ONEDNN", options)
if hasattr(os, "fork"):  # while the kernels are compiled
    if (child := os.fork()) == 0:
        compiled({"x": data})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
first, again = compiled({"x": data})["y"], core.compile_model(model, "ONEDNN", options)({"x": data})["y"]
assert (first == again).all()
print(made.count("dovetail-onednn-product"))
"""


@pytest.mark.parametrize(("threads", "op", "count"), [(2, "gru", 1), (1, "gru", 0), (2, "relu", 0)])
def test_the_kernels_of_products_are_compiled_once_while_planning(threads, op, count):
    """A GRU builds on oneDNN's general product before 3.7. A device of one thread starts no second; a process forked meanwhile
    runs.
    """
    if library().version >= (3, 7):
        count = 0
    env = {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRODUCT, str(threads), op]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{count}\n")


@pytest.mark.parametrize(("rows", "shared"), [(ALONE // 4096, False), (ALONE // 4096 + 1, True)])
def test_small_constants_are_moved_on_one_thread(monkeypatch, rows, shared):
    """A second one would spin until the next constant comes. What was planned for several threads goes on with these."""
    asked, execute, data = [], Onednn.execute, np.random.default_rng(0).random((rows, 1024), np.float32)
    src, dst = plain(data.shape), library().strided(data.shape, (1, rows))

    def noting(lib, *given):
        asked.append(lib.planned_threads)
        execute(lib, *given)

    monkeypatch.setattr(Onednn, "execute", noting)
    for threads in (2, 1):
        library().plan_threads(threads)
        found = moved(data, src, dst, aligned(data.nbytes))
        assert library().planned_threads == threads
        np.testing.assert_array_equal(found.view(np.float32).reshape(1024, rows).T, data)
    assert asked == [2 if shared else 1, 1]
