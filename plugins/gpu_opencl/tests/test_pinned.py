"""The property PINNED: inputs and results in memory that the driver has locked."""

import threading
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import UsageError
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu

WEIGHTS = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32)


def model() -> Any:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    return g.model([g.node(Relu(), g.node(MatMul(), x, g.constant(WEIGHTS))), x])


def test_requests_at_once_give_right_results(info: DeviceInfo, queue: str) -> None:
    core = dovetail.Core(config=False)
    compiled = core.compile_model(model(), info.name, {"PINNED": True, "QUEUE": queue, "PERFORMANCE_HINT": "THROUGHPUT"})
    wrong: list[Any] = []

    def run(first: int) -> None:
        request = compiled.create_infer_request()
        for index in range(first, 12, 3):
            x = np.random.default_rng(index).standard_normal((index % 4, 5)).astype(np.float32)[::-1]
            y, same = request.infer(x).values()
            if not np.allclose(y, np.maximum(x.astype(np.float64) @ WEIGHTS, 0), 1e-5, 1e-5) or not np.array_equal(same, x):
                wrong.append(index)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    core.close()


def test_results_that_are_kept_or_shared(info: DeviceInfo) -> None:
    with dovetail.Core(config=False) as core:
        request = core.compile_model(model(), info.name, {"PINNED": True}).create_infer_request()
        x = np.random.default_rng(7).standard_normal((3, 5)).astype(np.float32)
        want = np.maximum(x.astype(np.float64) @ WEIGHTS, 0)
        kept = request.infer(x, on_device=True)
        shared = request.infer(x + 0, share_outputs=True)
        request.infer(kept[1])
        np.testing.assert_allclose(np.asarray(kept[0]), want, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(shared[1], x)
    np.testing.assert_allclose(shared[0], want, rtol=1e-5, atol=1e-5)  # the memory outlives the session


def test_locked_memory_belongs_to_a_queue_in_order(info: DeviceInfo, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's driver for CPUs waits for ever after memory was freed in a queue out of order."""
    used, lock = [], cl.enqueue_map_buffer

    def noting(queue: Any, *given: Any) -> Any:
        used.append(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return lock(queue, *given)

    monkeypatch.setattr(cl, "enqueue_map_buffer", noting)
    with dovetail.Core(config=False) as core:
        core.compile_model(model(), info.name, {"PINNED": True, "QUEUE": queue})(np.ones((3, 5), np.float32))
    assert used
    assert not any(used)


def test_its_value_is_checked(info: DeviceInfo) -> None:
    with (
        pytest.raises(UsageError, match="property PINNED of OPENCL is 1; accepted: True or False"),
        dovetail.Core(config=False) as core,
    ):
        core.compile_model(model(), info.name, {"PINNED": 1})
