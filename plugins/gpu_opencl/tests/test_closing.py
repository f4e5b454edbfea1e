"""Models on OPENCL that are closed, while others run them or before they run; what is tried in another process has a limit."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import DeviceError, UsageError
from dovetail_gpu_opencl import lifetime
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_ops_onnx.relu import Relu

LIMIT = 120
"""Seconds after which a process or thread counts as hanging."""
X = np.arange(6, dtype=np.float32).reshape(2, 3)

_MODEL = """
import threading
import numpy as np
import dovetail
from dovetail.errors import UsageError
from dovetail_ops_onnx.mat_mul import MatMul

w = np.arange(3 * 200, dtype=np.float32).reshape(3, 200)
g = dovetail.GraphBuilder()
x = g.input("x", "float32", [2, 3])
model = g.model([g.node(MatMul(), x, g.constant(w), outputs=["y"])])
X = np.arange(6, dtype=np.float32).reshape(2, 3)
core = dovetail.Core(config=False)
compiled = core.compile_model(model, {device!r})
np.testing.assert_allclose(compiled(X)[0], X @ w)
"""


def in_a_process(device: str, text: str) -> str:
    """The output of a program after these lines; it must end by itself, without an error."""
    done = subprocess.run(
        [sys.executable, "-c", _MODEL.format(device=device) + text], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_infer_after_close(info: DeviceInfo) -> None:
    """It was a segmentation fault: the kernels' arguments are constants that close() frees."""
    text = """
request = compiled.create_infer_request()
request.infer(X)
compiled.close()
for run in (lambda: compiled(X), lambda: request.infer(X), lambda: request.start_async(X)):
    try:
        run()
    except UsageError as error:
        print(error.message)
"""
    assert in_a_process(info.name, text).count("the compiled model was closed") == 3


@pytest.mark.parametrize("close", ["compiled.close", "core.close"])
def test_close_while_threads_infer(info: DeviceInfo, close: str) -> None:
    text = f"""
ended, begun = [], threading.Barrier(5)
def work():
    compiled(X)
    begun.wait()
    while True:
        try:
            found = compiled(X)[0]
        except UsageError as error:
            ended.append(error.message)
            return
        np.testing.assert_allclose(found, X @ w)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
begun.wait()
{close}()
for thread in threads:
    thread.join()
print(ended)
"""
    assert in_a_process(info.name, text).count("the compiled model was closed") == 4


def test_a_request_outlives_the_executable(device: OpenCLDevice, bench: Any) -> None:
    """As its docstring says: constants go with the last request. A new request is refused."""
    w = np.arange(15, dtype=np.float32).reshape(3, 5)
    graph, _ = bench.single(bench.op("MatMul"), [X, w], constants=(1,))
    executable = device.compile(graph, {})
    request = executable.create_request()
    executable.close()
    others = [device.compile(graph, {}).create_request().run([X]) for _ in range(20)]
    assert len(others) == 20
    np.testing.assert_allclose(request.run([X])[0], X @ w)
    with pytest.raises(UsageError, match="this executable was closed"):
        executable.create_request()
    request.close()


def test_close_in_a_callback(info: DeviceInfo) -> None:
    core = dovetail.Core(config=False)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [2, 3])
    compiled = core.compile_model(g.model([g.node(Relu(), x, outputs=["y"])]), info.name)
    queue, done = dovetail.AsyncInferQueue(compiled, 8), threading.Event()

    def callback(request: dovetail.InferRequest, index: int) -> None:
        if index == 20:
            compiled.close()
            done.set()

    queue.set_callback(callback)

    def start_all() -> None:
        for index in range(100_000):
            queue.start_async(X, index)

    with pytest.raises(UsageError, match="the compiled model was closed"):
        start_all()
    queue.wait_all()
    assert done.is_set()
    compiled.close()


def test_daemon_threads_at_the_end(info: DeviceInfo) -> None:
    """They aborted the process: a driver call that returns while the interpreter ends must not find it gone."""
    text = """
import os, time
def work():
    while True:
        try:
            compiled(X)
        except dovetail.DovetailError as error:
            os.write(1, error.message.encode() + b"\\n")  # at once: `print` writes its line end apart
            return
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    assert in_a_process(info.name, text).splitlines() in ([], *(["the process is ending"] * n for n in (1, 2, 3)))


def test_the_end_of_the_process_waits_for_the_outer_of_two_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run brings states of another device to the host, with driver calls of their own."""
    in_use, seen = lifetime._InUse(), list[bool]()
    inner, ending = threading.Event(), threading.Event()

    def work() -> None:
        with in_use:
            with in_use:
                pass
            inner.set()
            assert ending.wait(LIMIT)
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    assert inner.wait(LIMIT)
    monkeypatch.setattr(lifetime.time, "sleep", lambda seconds: ending.set())
    monkeypatch.setattr(lifetime, "_LONGEST", LIMIT)
    in_use.end()
    assert seen == [True]
    thread.join()
    with pytest.raises(DeviceError, match="the process is ending"), in_use:
        pass


def test_the_end_of_the_process_does_not_wait_for_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may end it in a context, before that is left."""
    in_use = lifetime._InUse()
    monkeypatch.setattr(lifetime.time, "sleep", pytest.fail)
    in_use.__enter__()
    in_use.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_model_in_other_processes(info: DeviceInfo, method: str, tmp_path: Path) -> None:
    """Handed to a pool: spawned processes compile when they run; forked ones refuse to run, and nobody waits for ever."""
    program = tmp_path / "pool.py"
    program.write_text(
        f"""
import multiprocessing, pickle, sys
import numpy as np
import dovetail
from dovetail_ops_onnx.relu import Relu

def work(compiled):
    return repr(compiled), compiled(np.array([-1, 2, 3], np.float32))[0].tolist(), repr(compiled)

if __name__ == "__main__":
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [3])
    compiled = dovetail.Core(config=False).compile_model(g.model([g.node(Relu(), x)]), {info.name!r})
    compiled(np.ones(3, np.float32))
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        try:
            for first, found, last in pool.map_async(work, [compiled, compiled]).get(90):
                print("not compiled yet" in first, found, {info.name!r} in last)
        except dovetail.DovetailError as error:
            print(error)
    if {method!r} == "fork":
        context = multiprocessing.get_context("fork")
        child = context.Process(target=work, args=(compiled,))  # inherited, not pickled
        child.start()
        child.join(60)
        print("exit code", child.exitcode)
"""
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    if method == "spawn":
        assert done.stdout.splitlines() == ["True [0.0, 2.0, 3.0] True"] * 2
    else:
        assert "OpenCL was used before this process was forked" in done.stdout
        assert "start processes by spawn or forkserver" in done.stdout
        assert "exit code 1" in done.stdout
        assert "OpenCL was used before this process was forked" in done.stderr


def test_kernel_objects_serve_later_requests(device: Any, bench: Any) -> None:
    """Those of requests that are gone, with all of their arguments set anew; requests that live share none."""
    x, two = np.arange(6, dtype=np.float32), np.full(6, 2, np.float32)
    graph, _ = bench.single(bench.op("Mul"), [x, two])
    executable = device.compile(graph, {})
    device.programs._spare.clear()  # those of other tests
    held, gone = executable.create_request(), executable.create_request()
    (kernel, *_), (ours, *_) = gone._launches[0], held._launches[0]
    np.testing.assert_array_equal(gone.run([x, two])[0], x * 2)
    del gone
    gc.collect()
    later = executable.create_request()
    assert later._launches[0][0] is kernel is not ours
    np.testing.assert_array_equal(later.run([x + 1, two])[0], (x + 1) * 2)
    np.testing.assert_array_equal(held.run([x, x])[0], x**2)
