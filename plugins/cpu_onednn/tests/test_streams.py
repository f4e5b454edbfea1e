"""Streams: the threads of the device are divided among requests that run at once."""

import threading
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_cpu_onednn.device import OnednnDevice, infos
from dovetail_ops_onnx.mat_mul import MatMul

WEIGHTS = np.random.default_rng(2).standard_normal((65, 33)).astype(np.float32)


def product() -> Any:
    g = dovetail.GraphBuilder()
    return g.model([g.node(MatMul(), g.input("x", "float32", [17, 65]), g.constant(WEIGHTS))])


@pytest.mark.parametrize(
    ("threads", "count", "streams", "each"),
    [(2, None, 2, 1), (9, None, 9, 1), (8, 2, 2, 4), (8, 3, 3, 2), (1, 4, 4, 1)],
)
def test_threads_are_divided(threads: int, count: int | None, streams: int, each: int) -> None:
    (info,) = infos()
    device = OnednnDevice(info, {"INFERENCE_NUM_THREADS": threads})
    divided = device.for_streams(count)
    assert (divided.streams, divided._threads) == (streams, each)
    assert (device.streams, device._threads) == (1, threads)


@pytest.mark.parametrize(
    ("properties", "requests"),
    [({"NUM_STREAMS": 2}, 2), ({"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 8}, 8)],
)
def test_requests_at_once_give_what_one_gives(properties: dict[str, Any], requests: int) -> None:
    core = dovetail.Core(config=False)
    compiled = core.compile_model(product(), "ONEDNN", properties)
    assert compiled.optimal_number_of_infer_requests == requests
    inputs = [np.random.default_rng(i).standard_normal((17, 65)).astype(np.float32) for i in range(12)]
    found: list[Any] = [None] * len(inputs)

    def run(first: int) -> None:
        request = compiled.create_infer_request()
        for index in range(first, len(inputs), 3):
            found[index] = request.infer(inputs[index])[0]

    threads = [threading.Thread(target=run, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for got, x in zip(found, inputs, strict=True):
        np.testing.assert_allclose(got, x.astype(np.float64) @ WEIGHTS, rtol=1e-4, atol=1e-4)
    core.close()
