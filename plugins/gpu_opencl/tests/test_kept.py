"""Results that stay in buffers: no transfer where a later request reads them, and no later run changes them."""

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import dovetail
from dovetail.device import DeviceArray, DeviceInfo
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape

WEIGHTS = np.random.default_rng(5).standard_normal((7, 7)).astype(np.float32) / 3


def step(rows: int | str = 3) -> Any:
    """state' = relu(state w) + x, and a view of x."""
    g = dovetail.GraphBuilder()
    x, state = (g.input(name, "float32", [rows, 7]) for name in ("x", "state"))
    moved = g.node(Relu(), g.node(MatMul(), state, g.constant(WEIGHTS)))
    return g.model([g.node(Add(), moved, x), g.node(Reshape(), x, g.constant([-1]))])


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The transfers, `up` or `down`."""
    found: list[str] = []
    inner = cl.enqueue_copy

    def copy(queue: Any, dest: Any, src: Any, **how: Any) -> Any:
        found.append("up" if isinstance(dest, cl.Buffer) else "down")
        return inner(queue, dest, src, **how)

    monkeypatch.setattr(cl, "enqueue_copy", copy)
    return found


def test_a_state_goes_from_run_to_run(core: Any, info: DeviceInfo, queue: str, rng: np.random.Generator) -> None:
    request = core.compile_model(step(), info.name, {"QUEUE": queue}).create_infer_request()
    state: Any = rng.standard_normal((3, 7)).astype(np.float32)
    want, kept = state.astype(np.float64), []
    for _ in range(6):
        x = rng.standard_normal((3, 7)).astype(np.float32)
        results = request.infer({"x": x, "state": state}, on_device=True)
        state, want = results[0], np.maximum(want @ WEIGHTS, 0) + x
        kept.append((results, want, x))
    for results, want, x in kept:
        np.testing.assert_allclose(np.asarray(results[0]), want, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(np.asarray(results[1]), x.reshape(-1))
    # From arrays again: the kernels read the request's own buffers.
    x, state = (rng.standard_normal((3, 7)).astype(np.float32) for _ in range(2))
    want = np.maximum(state.astype(np.float64) @ WEIGHTS, 0) + x
    np.testing.assert_allclose(request.infer([x, state])[0], want, rtol=1e-5, atol=1e-5)


def test_what_stays_is_not_transferred(
    core: Any, info: DeviceInfo, copies: list[str], queue: str, rng: np.random.Generator
) -> None:
    request = core.compile_model(step(), info.name, {"QUEUE": queue}).create_infer_request()
    x, state = (rng.standard_normal((3, 7)).astype(np.float32) for _ in range(2))
    first = request.infer([x, state], on_device=True)
    assert copies == ["up", "up"]
    copies.clear()
    second = request.infer([x, first[0]], on_device=True)
    assert copies == ["up"], "x, which is an output, too"
    copies.clear()
    np.asarray(second[0])
    assert copies == ["down"]


def test_with_guard_bytes_what_is_kept_goes_through_the_host(core: Any, info: DeviceInfo) -> None:
    """The bytes around the buffers of other requests are not checked."""
    request = core.compile_model(step(), info.name, {"DEBUG_BUFFERS": True}).create_infer_request()
    x = np.ones((3, 7), np.float32)
    first = request.infer([x, x], on_device=True)
    second = request.infer([x, first[0]], on_device=True)
    assert all(isinstance(one.held, np.ndarray) for one in second.values())
    want = np.maximum(x.astype(np.float64) @ WEIGHTS, 0) + x
    np.testing.assert_allclose(np.asarray(second[0]), np.maximum(want @ WEIGHTS, 0) + x, rtol=1e-5, atol=1e-4)


def test_a_kept_result_outlives_its_request_and_other_sessions_read_it(core: Any, info: DeviceInfo) -> None:
    x = np.ones((3, 7), np.float32)
    compiled = core.compile_model(step(), info.name)
    kept = compiled([x, x], on_device=True)[0]
    want = np.maximum(x.astype(np.float64) @ WEIGHTS, 0) + x
    compiled.close()
    np.testing.assert_allclose(np.asarray(kept), want, rtol=1e-5, atol=1e-5)
    with dovetail.Core(config=False) as other:
        found = other.compile_model(step(), info.name)([kept, kept])
        np.testing.assert_allclose(found[0], np.maximum(want @ WEIGHTS, 0) + want, rtol=1e-5, atol=1e-4)
        found = other.compile_model(step(), "NUMPY")([kept, kept])
        np.testing.assert_allclose(found[0], np.maximum(want @ WEIGHTS, 0) + want, rtol=1e-5, atol=1e-4)


def test_empty_results_and_arrays_of_the_host(core: Any, info: DeviceInfo) -> None:
    compiled = core.compile_model(step("N"), info.name)
    empty = np.empty((0, 7), np.float32)
    kept = compiled([empty, empty], on_device=True)
    assert [(type(one), one.shape) for one in kept.values()] == [(DeviceArray, (0, 7)), (DeviceArray, (0,))]
    assert compiled([empty, kept[0]])[0].shape == (0, 7)
    x = np.ones((2, 7), np.float32)
    found = compiled([DeviceArray.on_host(x), DeviceArray.on_host(x)])[0]
    np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ WEIGHTS, 0) + x, rtol=1e-5)
