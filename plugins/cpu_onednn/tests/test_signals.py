"""Signals do not disturb kernels of oneDNN that use the heap as their stack: `dovetail_cpu_onednn.signals`."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.signals import _CONCERNED, SignalStack, _Stack, no_signals

pytestmark = pytest.mark.skipif(not _CONCERNED, reason="the kernels are those of x86-64, and signals those of Linux")

PROGRAM = """
import signal, sys, threading, time
import numpy as np
from dovetail import Core
from dovetail.op import GraphBuilder
from dovetail_cpu_onednn import library
from dovetail_ops_onnx.gru import GRU

threads, batch, hidden = map(int, sys.argv[1:])
rng, g = np.random.default_rng(0), GraphBuilder()

def weights(*shape):
    return g.constant((rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))

x = g.input("x", "float32", [20, batch, hidden])
gates = weights(1, 3 * hidden, hidden), weights(1, 3 * hidden, hidden), weights(1, 6 * hidden)
y = g.node(GRU(hidden_size=hidden, linear_before_reset=1), x, *gates)
compiled = Core().compile_model(g.model([y]), "ONEDNN", {"INFERENCE_NUM_THREADS": threads})
data = rng.standard_normal((20, batch, hidden)).astype(np.float32)
expected, handled = compiled(data)[0], []
assert library.library().planned_threads == threads

timer, number = (signal.ITIMER_REAL, signal.SIGALRM) if threads == 1 else (signal.ITIMER_PROF, signal.SIGPROF)
signal.signal(number, lambda *_: handled.append(1))
signal.setitimer(timer, 2e-4, 2e-4)
end = time.monotonic() + 2
while time.monotonic() < end or len(handled) <= 20:  # a busy machine gives the process less time
    assert np.array_equal(compiled(data)[0], expected)
signal.setitimer(timer, 0)
"""


@pytest.mark.parametrize("sizes", [(1, 4, 96), (2, 32, 256)])
def test_handlers_leave_the_heap_alone(sizes: tuple[int, ...]) -> None:
    """Sums of more than 84 products, until 20 handlers ran. Without alternate stacks, or where threads of OpenMP get signals,
    the process ends soon.
    """
    command = [sys.executable, "-P", "-c", PROGRAM, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-1000:]


def _stack() -> _Stack:
    found = _Stack()
    assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found)) == 0
    return found


def test_each_thread_that_computes_has_a_stack_for_them() -> None:
    found: list[tuple[int, int]] = []

    def work() -> None:
        found.append((_stack().flags, _stack().size))
        library().set_threads(1)
        found.append((_stack().flags, _stack().size))
        kept = _stack().start
        SignalStack()  # which replaces none, and removes none
        assert _stack().start == kept

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0][0] == 2
    assert found[1][0] == 0
    assert found[1][1] >= 32_768


def test_the_stack_goes_with_its_object() -> None:
    found: list[int] = []

    def work() -> None:
        stack = SignalStack()
        found.append(_stack().flags)
        del stack
        found.append(_stack().flags)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [0, 2]


def _blocked(task: str) -> set[int] | None:
    """The signals that a thread of this process blocks; None for one that has ended."""
    try:
        text = Path(f"/proc/self/task/{task}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    (line,) = [x for x in text.splitlines() if x.startswith("SigBlk")]
    mask = int(line.split()[1], 16)
    return {n for n in range(1, 65) if mask >> (n - 1) & 1}


def test_threads_of_openmp_get_no_signals() -> None:
    """Also those that a larger team needs after a smaller one. What others send is blocked, and faults of the thread are not."""
    before, mask = set(os.listdir("/proc/self/task")), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    started: set[str] = set()

    def work() -> None:
        for count in (2, 4, 2, 4):
            library().set_threads(count)
        started.update(set(os.listdir("/proc/self/task")) - before - {str(threading.get_native_id())})
        # A team that becomes smaller ends threads, which a busy machine may still list.
        masks = [found for found in map(_blocked, started) if found is not None]
        assert len(masks) >= 3
        for found in masks:
            assert {signal.SIGPROF, signal.SIGALRM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1} <= found
            assert not {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE} & found
        own = _blocked(str(threading.get_native_id()))
        assert own is not None
        assert not {signal.SIGPROF, signal.SIGINT} & own
        library().set_threads(1)
        done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_signals_are_blocked_inside_only() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with no_signals():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
