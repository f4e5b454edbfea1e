"""Results that stay on the device: read by later requests where they are, and never changed by a later run."""

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceArray, DeviceInfo, Executable, ExecutableRequest, Graph
from dovetail.errors import InputError
from dovetail.graph import Model
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu


class Request(ExecutableRequest):
    """2 x + 1 in the same memory in every run."""

    def __init__(self, device: "Doubling", graph: Graph) -> None:
        device.alive += 1
        device.made += 1
        self._device = device
        self._result = np.empty(graph.types[graph.outputs[0]].dims, np.float32)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        self._device.read.append(inputs[0])
        np.multiply(inputs[0], 2, out=self._result)
        self._result += 1
        return [self._result]

    def close(self) -> None:
        self._device.alive -= 1


class Doubling(ReferenceDevice):
    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self.alive = self.made = 0
        self.read: list[Any] = []

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        executable = super().compile(graph, options)
        executable.create_request = lambda: Request(self, graph)  # type: ignore[method-assign]  # of one object
        return executable


def model(rows: int | str = "N") -> Model:
    g = dovetail.GraphBuilder()
    two, one = (g.constant(np.float32(value)) for value in (2, 1))
    return g.model([g.node(Add(), g.node(Mul(), g.input("x", "float32", [rows, 3]), two), one)])


@pytest.fixture
def doubling(toy_core: Any) -> Any:
    """A compiled model and its device."""
    core, _ = toy_core()
    opened: list[Doubling] = []

    def open_device(info: DeviceInfo) -> Doubling:
        opened.append(Doubling(info))
        return opened[-1]

    register_device(core, DeviceInfo("A.0", "A", "CPU", "doubles"), open_device)
    return core.compile_model(model(), "A"), opened[0]


X = np.array([[-1, 0.5, 2]], np.float32)


def test_later_runs_change_no_result_that_is_kept(doubling: Any) -> None:
    compiled, device = doubling
    request = compiled.create_infer_request()
    kept = [request.infer(X * index, on_device=True)[0] for index in range(5)]
    assert [type(one) for one in kept] == [DeviceArray] * 5
    assert device.made == 5
    for index, one in enumerate(kept):
        np.testing.assert_array_equal(np.asarray(one), X * index * 2 + 1)
        np.testing.assert_array_equal(np.from_dlpack(one), X * index * 2 + 1)
    assert (kept[0].shape, kept[0].dtype, kept[0].ndim, repr(kept[0])) == ((1, 3), np.float32, 2, "<DeviceArray float32[1, 3]>")


def test_a_result_is_read_where_it_is_and_its_memory_is_used_again(doubling: Any) -> None:
    compiled, device = doubling
    request = compiled.create_infer_request()
    value, want = request.infer(X, on_device=True)[0], 2 * X + 1
    for _ in range(10):
        held = value.held
        value, want = request.infer({"x": value}, on_device=True)[0], want * 2 + 1
        assert device.read[-1] is held
        np.testing.assert_array_equal(np.asarray(value), want)
    assert device.made == 2, "one is read while the other one is written"
    np.testing.assert_array_equal(request.infer(value)[0], want * 2 + 1)
    other = compiled.create_infer_request()
    np.testing.assert_array_equal(other.infer([value])[0], want * 2 + 1)
    assert device.read[-1] is value.held


def test_values_that_pass_through_are_not_bound_to_the_run(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    state = g.input("state", "float32", [1, 3])
    request = core.compile_model(g.model([state, g.node(Relu(), state)]), "A").create_infer_request()
    x = X.copy()
    first = request.infer(x, on_device=True)[0]
    x[:] = 7
    np.testing.assert_array_equal(np.asarray(first), X)
    again = first
    for _ in range(3):
        again = request.infer(again, on_device=True)[0]
    assert again is first
    assert len(first.owners) == 1


def test_what_the_host_gets_is_a_copy(doubling: Any) -> None:
    compiled, _ = doubling
    value = compiled(X, on_device=True)[0]
    copied = np.asarray(value)
    copied[:] = 0
    np.testing.assert_array_equal(np.asarray(value), 2 * X + 1)
    assert np.asarray(value, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="comes to the host as a copy"):
        np.array(value, copy=False)


def test_other_shapes_and_closing_leave_nothing_behind(doubling: Any) -> None:
    compiled, device = doubling
    request = compiled.create_infer_request()
    kept = [request.infer(np.repeat(X, rows, 0), on_device=True)[0] for rows in (1, 1, 2, 1, 0)]
    assert [one.shape for one in kept] == [(1, 3), (1, 3), (2, 3), (1, 3), (0, 3)]
    compiled.close()
    np.testing.assert_array_equal(np.asarray(kept[2]), np.repeat(2 * X + 1, 2, 0))
    del kept, request, compiled
    gc.collect()
    assert device.alive == 0


def test_spare_buffers_are_closed_with_the_request(doubling: Any) -> None:
    compiled, device = doubling
    request = compiled.create_infer_request()
    kept = [request.infer(X, on_device=True)[0] for _ in range(4)]
    request.infer(X)
    del kept
    gc.collect()
    assert 1 < device.alive < 5, "some wait for their next use, not all of them"
    request.close()
    assert device.alive == 0


def test_wrong_types_and_shapes_are_refused_as_those_of_arrays(doubling: Any) -> None:
    compiled, _ = doubling
    with pytest.raises(InputError, match=r"input 'x' is float64\[1, 3\]; accepted: float32\[N, 3\]"):
        compiled(DeviceArray.on_host(X.astype(np.float64)))
    with pytest.raises(InputError, match=r"dimension 1 is 2; accepted"):
        compiled(DeviceArray.on_host(X[:, :2]))


def test_results_of_other_devices_come_by_way_of_the_host(doubling: Any) -> None:
    compiled, device = doubling
    elsewhere = DeviceArray("a buffer", (1, 3), np.float32, lambda: X + 1)
    np.testing.assert_array_equal(compiled(elsewhere)[0], 2 * (X + 1) + 1)
    np.testing.assert_array_equal(device.read[-1], X + 1)


def test_models_on_several_devices_keep_results_on_the_host(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type == "Add", B=lambda node: False)
    request = core.compile_model(model(1), "TOGETHER:A,B").create_infer_request()
    first = request.infer(X, on_device=True)[0]
    second = request.infer(first, on_device=True)[0]
    np.testing.assert_array_equal(np.asarray(first), 2 * X + 1)
    np.testing.assert_array_equal(np.asarray(second), 4 * X + 3)


def test_in_the_background_and_in_a_trace(doubling: Any) -> None:
    compiled, _ = doubling
    value = compiled(X, on_device=True)[0]
    request = compiled.create_infer_request()
    request.start_async(value)
    request.wait()
    np.testing.assert_array_equal(request.results[0], 4 * X + 3)
    trace = request.trace(value)
    np.testing.assert_array_equal(request.results[0], 4 * X + 3)
    assert trace.slices
    with dovetail.Trace().recording():
        np.testing.assert_array_equal(np.asarray(compiled(value, on_device=True)[0]), 4 * X + 3)


def test_a_part_of_a_result() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    result = DeviceArray.on_host(array)
    part = result.part(1, 1, 3)
    np.testing.assert_array_equal(part, array[:, 1:3])
    part[...] = 0
    assert array[0, 1, 0] == 4
    for axis, start, stop in ((3, 0, 1), (-1, 0, 1), (1, 2, 1), (1, 0, 4)):
        with pytest.raises(ValueError, match=f"elements {start} to {stop} along axis {axis}"):
            result.part(axis, start, stop)
