"""Weights in the order of kernels: made once for all shapes of a model, used where they are on CPUs, freed with the model."""

import gc
import weakref
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import Arenas, DeviceInfo
from dovetail_gpu_opencl.executable import CLExecutable
from dovetail_gpu_opencl.kernels._gemm import pack_columns
from dovetail_gpu_opencl.kernels.conv import pack_weights
from dovetail_gpu_opencl.launch import Constant
from dovetail_gpu_opencl.memory import ALIGNMENT, LARGE, Buffers, aligned_empty
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(20)


def some(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def weights() -> NDArray[np.float32]:
    return some(64, 40)


def _compiled(core: dovetail.Core, info: DeviceInfo, weights: NDArray[np.float32]) -> dovetail.CompiledModel:
    g = dovetail.GraphBuilder()
    y = g.node(MatMul(), g.input("x", "float32", ["N", len(weights)]), g.constant(weights))
    return core.compile_model(g.model([y]), info.name)


def _executable(compiled: dovetail.CompiledModel, rows: int, depth: int) -> CLExecutable:
    (step,) = compiled.plan(((rows, depth),)).steps
    assert isinstance(step.executable, CLExecutable)
    return step.executable


def _packed(compiled: dovetail.CompiledModel, rows: int, depth: int = 64) -> list[NDArray[Any]]:
    """The constants that a plan reads in place of the weights: one on CPUs; kernels of GPUs may read the weights themselves."""
    commands = _executable(compiled, rows, depth).commands
    return [a.array for c in commands for a in c.launch.arguments if isinstance(a, Constant)]


def test_shapes_share_weights(info: DeviceInfo, weights: NDArray[np.float32]) -> None:
    if info.kind != "CPU":
        pytest.skip("the kernels of GPUs lay weights out for each plan")
    with _compiled(dovetail.Core(config=False), info, weights) as compiled:
        (packed,), (again,) = _packed(compiled, 33), _packed(compiled, 34)
        assert packed is again
        for rows in (33, 34, 1):
            x = some(rows, 64)
            np.testing.assert_allclose(compiled(x)[0], x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)


def test_another_compilation_reads_the_weights_again(info: DeviceInfo, weights: NDArray[np.float32]) -> None:
    """A caller may change the arrays of a model between two compilations."""
    core, x = dovetail.Core(config=False), some(33, 64)
    with _compiled(core, info, weights) as compiled:
        compiled(x)
        weights *= 2
        with _compiled(core, info, weights) as again:
            np.testing.assert_allclose(again(x)[0], x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)


def test_weights_are_freed_when_the_model_is_closed(info: DeviceInfo, weights: NDArray[np.float32]) -> None:
    compiled = _compiled(dovetail.Core(config=False), info, weights)
    request = compiled.create_infer_request()
    gc.collect()
    gc.disable()
    try:
        request.infer(some(33, 64))
        # On GPUs the weights may be in the buffers of the executable alone.
        freed: list[Any] = [weakref.ref(one) for one in (_executable(compiled, 33, 64), *_packed(compiled, 33))]
        assert len(freed) == 2 or info.kind != "CPU"
        compiled.close()
        assert [one() for one in freed] == [None] * len(freed)
    finally:
        gc.enable()


def test_shapes_share_the_weights_on_the_device(info: DeviceInfo, weights: NDArray[np.float32]) -> None:
    """And another compilation of the same arrays has its own."""
    core = dovetail.Core(config=False)
    with _compiled(core, info, weights) as compiled, _compiled(core, info, weights) as other:
        compiled(some(33, 64))  # the plan is kept
        (first,), (again,), (own,) = (_buffers(one, rows) for one, rows in ((compiled, 33), (compiled, 34), (other, 33)))
        assert first is again
        assert first is not own


def _buffers(compiled: dovetail.CompiledModel, rows: int) -> list[Any]:
    return [one.buffer for one in _executable(compiled, rows, 64).constants().values()]


def test_requests_that_follow_each_other_have_the_same_memory(info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the one before the last, whose buffers are gone. Results that a caller holds stay as they are."""
    if info.kind != "CPU":
        pytest.skip("for memory of the host")
    taken, inner = [], Arenas.take

    def take(self: Arenas, nbytes: int) -> NDArray[np.uint8]:
        memory = inner(self, nbytes)
        taken.append(memory.ctypes.data)
        return memory

    monkeypatch.setattr(Arenas, "take", take)
    g = dovetail.GraphBuilder()
    model = g.model(
        [g.node(MatMul(), g.node(Relu(), g.input("x", "float32", ["N", 512])), g.constant(np.eye(512, dtype=np.float32)))]
    )
    with dovetail.Core(config=False).compile_model(model, info.name) as compiled:
        request, kept = compiled.create_infer_request(), []
        for rows in (600, 700, 650, 600, 900, 700):
            x = some(rows, 512)
            kept.append((request.infer({"x": x}, share_outputs=True)[0], np.maximum(x, 0)))
        assert len(taken) == 6
        assert len(set(taken)) == 2
        for found, expected in kept:
            np.testing.assert_array_equal(found, expected)


def test_what_nobody_uses_is_forgotten(weights: NDArray[np.float32]) -> None:
    known = PackedConstants()
    first = known.get(weights, "order", lambda: weights * 2)
    assert known.get(weights, "order", lambda: weights * 3) is first
    assert known.get(weights, "other", lambda: weights * 3) is not first
    assert known.get(weights.T, "order", lambda: weights * 3) is not first
    assert known.get(weights.copy(), "order", lambda: weights * 3) is not first
    del first
    gc.collect()
    assert len(known) == 0


@pytest.mark.parametrize("nbytes", [4, 100, LARGE - 4, LARGE, LARGE + 4])
def test_aligned_arrays(nbytes: int) -> None:
    array = aligned_empty((nbytes // 4,), np.float32)
    assert array.shape == (nbytes // 4,)
    assert array.ctypes.data % ALIGNMENT == 0
    array[...] = 1
    np.testing.assert_array_equal(array, 1)


@pytest.mark.parametrize("shift", [0, 4])
def test_a_cpu_reads_aligned_arrays_where_they_are(shift: int) -> None:
    context = cl.create_some_context(interactive=False)
    memory = aligned_empty((ALIGNMENT + 8,), np.uint8)
    array = memory[shift : shift + ALIGNMENT].view(np.float32)
    array[...] = 1
    array.flags.writeable = False
    for on_cpu, unified in ((True, True), (True, False), (False, True)):
        buffer = Buffers(context, 1 << 20, on_cpu=on_cpu, unified_memory=unified).holding(array, "the test")
        in_place = bool(buffer.flags & cl.mem_flags.USE_HOST_PTR)
        assert in_place == (on_cpu and unified and not shift)
        found = np.empty_like(array)
        cl.enqueue_copy(cl.CommandQueue(context), found, buffer)
        np.testing.assert_array_equal(found, 1)


def test_large_arrays_are_copied_once_to_a_gpu() -> None:
    """NVIDIA's driver keeps the array that a buffer is made from until a kernel reads the buffer."""
    context = cl.create_some_context(interactive=False)
    array = some(LARGE // 4 + 1)
    for given, by_driver in ((array, False), (array[:5], True)):
        buffer = Buffers(context, 1 << 30, on_cpu=False).holding(given, "the test")
        assert bool(buffer.flags & cl.mem_flags.COPY_HOST_PTR) == by_driver
        found = np.empty_like(given)
        cl.enqueue_copy(cl.CommandQueue(context), found, buffer)
        np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize(("columns", "n"), [(4, 8), (4, 9), (8, 5), (16, 48)])
@pytest.mark.parametrize("turned", [False, True])
def test_packed_columns(columns: int, n: int, turned: bool) -> None:
    matrices = some(2, n, 3).swapaxes(1, 2) if turned else some(2, 3, n)
    packed = pack_columns(matrices, columns, "float")
    assert packed.shape == (2, -(-n // columns), 3, columns)
    padded = np.pad(matrices, ((0, 0), (0, 0), (0, -n % columns)))
    for block in range(packed.shape[1]):
        np.testing.assert_array_equal(packed[:, block], padded[:, :, block * columns :][:, :, :columns])


@pytest.mark.parametrize(("groups", "own"), [(1, 8), (1, 5), (2, 4), (3, 6)])
def test_packed_weights(groups: int, own: int) -> None:
    weights = some(groups * own, 3, 2, 2)
    packed = pack_weights(weights, groups, 4, "double")
    assert packed.shape == (groups, -(-own // 4), 4, 3, 4)
    assert packed.dtype == np.float64
    for g, block, element, channel, column in np.ndindex(*packed.shape):
        row = 4 * block + column
        expected = weights[g * own + row, channel].reshape(-1)[element] if row < own else 0
        assert packed[g, block, element, channel, column] == expected
