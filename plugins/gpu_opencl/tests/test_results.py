"""The results of a run are the caller's: no later run writes into arrays that somebody has."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail_gpu_opencl.device import OpenCLDevice


def request_of(device: OpenCLDevice, bench: Any) -> Any:
    """A request that squares 2 x 3 numbers."""
    graph, _ = bench.single(bench.op("Mul"), [np.zeros((2, 3), np.float32)] * 2)
    return device.compile(graph, {}).create_request()


def numbers(start: int) -> list[NDArray[np.float32]]:
    x = np.arange(start, start + 6, dtype=np.float32).reshape(2, 3)
    return [x, x]


def test_results_that_are_held_stay(device: OpenCLDevice, bench: Any) -> None:
    request = request_of(device, bench)
    assert request.fresh
    held = [request.run(numbers(start))[0] for start in range(4)]
    line = request.run(numbers(4))[0][1]  # a view holds the array, too
    for start in range(5, 9):
        request.run(numbers(start))
    for start, result in enumerate(held):
        np.testing.assert_array_equal(result, numbers(start)[0] ** 2)
    np.testing.assert_array_equal(line, numbers(4)[0][1] ** 2)


def test_memory_that_nobody_has_is_written_again(device: OpenCLDevice, bench: Any) -> None:
    """Two arrays in turn, because the request has the latest."""
    request = request_of(device, bench)
    places = [request.run(numbers(start))[0].ctypes.data for start in range(8)]
    assert len(set(places)) == 2
