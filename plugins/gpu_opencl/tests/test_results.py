"""The results of a run are the caller's: no later run writes into arrays that somebody has."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceInfo
from dovetail_gpu_opencl import compiled
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_ops_onnx.sub import Sub


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


def test_results_in_locked_memory(kind_device: Callable[[str], Any], bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two arrays of a GPU with memory of its own; a view of one keeps it from being written again."""
    device = kind_device("GPU")
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, unified_memory=False))
    monkeypatch.setattr(compiled, "LOCKED", range(1, 100))
    request = request_of(device, bench)
    results = [request.run(numbers(start))[0] for start in range(4)]
    assert [result.flags.owndata for result in results] == [False, False, True, True]
    line = results[1][1]
    del results
    for start in range(4, 9):
        np.testing.assert_array_equal(request.run(numbers(start))[0], numbers(start)[0] ** 2)
    np.testing.assert_array_equal(line, numbers(1)[0][1] ** 2)


def test_memory_that_cannot_be_locked_is_not(
    kind_device: Callable[[str], Any], bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise dovetail.errors.OutOfMemory("no more memory can be locked")

    device = kind_device("GPU")
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, unified_memory=False))
    monkeypatch.setattr(compiled, "LOCKED", range(1, 100))
    monkeypatch.setattr(compiled, "pinned", refuse)
    np.testing.assert_array_equal(request_of(device, bench).run(numbers(3))[0], numbers(3)[0] ** 2)


@pytest.mark.parametrize(("unified", "lockable"), [(False, True), (False, False), (True, True)])
def test_flags_of_faults_are_in_locked_memory(
    unified: bool, lockable: bool, kind_device: Callable[[str], Any], bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU with memory of its own; a fault is reported once, wherever they are."""
    lock, locked = compiled.pinned, []

    def counted(*arguments: Any) -> Any:
        if not lockable:
            raise dovetail.errors.OutOfMemory("no more memory can be locked")
        locked.append(arguments)
        return lock(*arguments)

    device = kind_device("GPU")
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, unified_memory=unified))
    monkeypatch.setattr(compiled, "pinned", counted)
    data, indices = numbers(0)[0], np.array([0, 1])
    graph, _ = bench.single(bench.op("Gather"), [data, indices])
    request = device.compile(graph, {}).create_request()
    assert len(locked) == (lockable and not unified)
    for _ in range(2):
        np.testing.assert_array_equal(request.run([data, indices])[0], data[indices])
        with pytest.raises(dovetail.errors.InferError, match="an index is outside axis 0"):
            request.run([data, indices + 1])


@pytest.mark.parametrize("first", ["a", "b"])
def test_inputs_in_any_order_cost_no_copy(info: DeviceInfo, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that reads the second input first hands the arrays of its device to the caller, as any other does."""
    copied: list[Any] = []
    monkeypatch.setattr("dovetail.runtime.infer_request.owned", copied.append)
    g = dovetail.GraphBuilder()
    names = {name: g.input(name, "float32", [2, 3]) for name in "ab"}
    second = "b" if first == "a" else "a"
    a, b = numbers(1)[0], numbers(7)[0]
    with dovetail.Core(config=False) as core:
        model = g.model([g.node(Sub(), names[first], names[second])])
        (y,) = core.compile_model(model, info.name)({"a": a, "b": b}).values()
    assert not copied
    np.testing.assert_array_equal(y, a - b if first == "a" else b - a)
