"""Uploads of large inputs by threads and locked memory."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from dovetail_gpu_opencl import request
from dovetail_gpu_opencl.staging import Staging


@pytest.mark.parametrize("nbytes", [4, 4096, 8 * 4096, 100_004])
def test_all_parts_arrive(nbytes: int, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads only copy: those that enqueue wait for each other in the driver."""
    callers, enqueue = set(), cl.enqueue_copy
    monkeypatch.setattr(cl, "enqueue_copy", lambda *given, **how: callers.add(get_ident()) or enqueue(*given, **how))
    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes)
    staging = Staging(context, queue, nbytes)
    for _ in range(2):
        array = rng.integers(0, 1 << 31, (nbytes // 4, 1), np.int32)
        array.flags.writeable = False
        events = staging.upload(buffer, array)
        queue.finish()
        found = np.empty_like(array)
        cl.enqueue_copy(queue, found, buffer)
        np.testing.assert_array_equal(found, array)
        assert len(events) == -(-nbytes // staging._step)
    assert callers == {get_ident()}


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_without_all_threads_the_calling_one_copies(threads: int, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    left, start = iter(range(threads)), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    array = rng.integers(0, 1 << 31, 25_001, np.int32)
    buffer, staging = cl.Buffer(context, cl.mem_flags.READ_WRITE, array.nbytes), Staging(context, queue, array.nbytes)
    with ThreadPoolExecutor(4) as pool:
        monkeypatch.setattr("dovetail_gpu_opencl.staging._pool", lambda: pool)
        for number in range(3):
            with monkeypatch.context() as patch:  # not longer: pytest-timeout's threads start after the test
                patch.setattr(threading.Thread, "start", limited)
                staging.upload(buffer, array + number)
            queue.finish()
            found = np.empty_like(array)
            cl.enqueue_copy(queue, found, buffer)
            np.testing.assert_array_equal(found, array + number)


def test_a_request_of_a_gpu(kind_device: Callable[[str], Any], bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs, of which one is large."""
    device = kind_device("GPU")
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, unified_memory=False))
    monkeypatch.setattr(request, "STAGED", 1000)
    large, small = rng.standard_normal((40, 33)).astype(np.float32), rng.standard_normal(33).astype(np.float32)
    graph, _ = bench.single(bench.op("Mul"), [large, small])
    runs = device.compile(graph, {}).create_request()
    for factor in (1, 3):
        np.testing.assert_array_equal(runs.run([factor * large, small])[0], factor * large * small)
    assert len(runs._staged_inputs) == 1
