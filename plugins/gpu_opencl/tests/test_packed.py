"""Weights in the order of kernels: made once for all shapes of a model, used where they are on CPUs, freed with the model."""

import dataclasses
import gc
import weakref
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import Arenas, DeviceInfo, TypedNode
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.executable import CLExecutable
from dovetail_gpu_opencl.kernels._gemm import pack_columns
from dovetail_gpu_opencl.kernels._integer import Weights
from dovetail_gpu_opencl.kernels.conv import pack_weights
from dovetail_gpu_opencl.launch import Constant
from dovetail_gpu_opencl.memory import ALIGNMENT, LARGE, Buffers, aligned_empty
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
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


def _quantized(rows: NDArray[np.int8], kernel: NDArray[np.int8]) -> dovetail.Model:
    """Dynamically quantized rows by a constant, and a product and a convolution between quantized values."""
    g = dovetail.GraphBuilder()
    scale, zero, fine = g.constant(np.float32(0.1)), g.constant(np.uint8(3)), g.constant(np.float32(0.01))
    none = g.constant(np.int8(0))
    a, image = g.input("a", "float32", ["N", len(rows)]), g.input("image", "float32", ["N", kernel.shape[1], 6, 5])
    stored, _, origin = g.node(DynamicQuantizeLinear(), a, outputs=["stored", "scale", "origin"])
    sums = g.node(MatMulInteger(), stored, g.constant(rows), origin)
    found = [sums]
    for op, value, weights in ((MatMul(), a, rows), (Conv(pads=(1, 1, 1, 1)), image, kernel)):
        real = g.node(DequantizeLinear(), g.node(QuantizeLinear(), value, scale, zero), scale, zero)
        other = g.node(DequantizeLinear(axis=0), g.constant(weights), fine, none)
        found.append(g.node(QuantizeLinear(), g.node(op, real, other), scale, zero))
    return g.model(found)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_shapes_share_all_that_is_made_of_quantized_weights(kind: str, info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed of them for another shape, nor made anew, nor uploaded."""
    own, computed, inner = Capabilities.query, list[Any](), Weights.__dict__["_whole"].func

    def query(device: Any) -> Capabilities:
        return dataclasses.replace(own(device), kind=kind, ptx=False, compute_capability=(0, 0))

    def whole(weights: Weights) -> Any:
        computed.append(weights)
        return inner(weights)

    monkeypatch.setattr(Capabilities, "query", staticmethod(query))
    monkeypatch.setattr(Weights, "_whole", property(whole))
    rows, kernel = RNG.integers(-127, 128, (64, 40), np.int8), RNG.integers(-127, 128, (24, 16, 3, 3), np.int8)
    model = _quantized(rows, kernel)
    with dovetail.Core(config=False).compile_model(model, info.name) as compiled:
        made = []
        for count in (7, 9, 8):
            (step,) = compiled.plan(((count, 64), (count, 16, 6, 5))).steps
            assert isinstance(step.executable, CLExecutable)
            made.append(step.executable)
            if count == 7:
                assert len(computed) >= 3
                computed.clear()
        assert not computed
        names = {node.kernel for node in compiled.plans[((8, 64), (8, 16, 6, 5))].nodes}
        ours = ("gemm_integer_rows", "quantized_gemm_rows", "quantized_conv_rows")
        assert names >= {*ours} if kind == "CPU" else names >= {"gemm_bytes", "quantized_gemm_bytes", "quantized_conv_bytes"}
        first, *others = (
            {id(a.array) for c in one.commands for a in c.launch.arguments if isinstance(a, Constant)} for one in made
        )
        assert len(first) >= 3
        assert all(other == first for other in others)


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


def test_facts_are_found_once_for_each_constant(weights: NDArray[np.float32]) -> None:
    known = PackedConstants()
    assert known.fact(weights, "most", lambda: 7) == 7
    assert known.fact(weights, "most", lambda: 8) == 7
    assert known.fact(weights, "least", lambda: 8) == 8
    assert known.fact(weights.T, "most", lambda: 9) == 9
    other = weights.copy()
    assert known.fact(other, "most", lambda: 10) == 10
    assert len(known) == 4
    del other
    gc.collect()
    assert len(known) == 3


def test_what_is_made_of_a_node_is_kept_for_its_key_and_constants(bench: Any, weights: NDArray[np.float32]) -> None:
    known, count = PackedConstants(), iter(range(9))
    graph, _ = bench.single(MatMul(), [some(3, 64), weights], (1,))
    other, _ = bench.single(MatMul(), [some(5, 64), weights], (1,))
    node, another = (TypedNode.of(one.nodes[0], one) for one in (graph, other))
    longer = dataclasses.replace(node, inputs=(another.inputs[0], node.inputs[1]))
    changed = dataclasses.replace(node, inputs=(node.inputs[0], another.inputs[1]))
    for taken, key, expected in ((node, 1, 0), (longer, 1, 0), (node, 2, 1), (node, 1, 2), (changed, 1, 3), (another, 1, 4)):
        assert known.once("kernel", taken, key, lambda: next(count)) == expected


def test_arrays_of_the_same_content() -> None:
    known = PackedConstants()
    first = known.same(b"content")
    assert first.tobytes() == b"content"
    assert known.same(bytes([*b"content"])) is first
    assert known.same(b"other") is not first


@pytest.mark.parametrize("nbytes", [4, 100, LARGE - 4, LARGE, LARGE + 4])
def test_aligned_arrays(nbytes: int) -> None:
    array = aligned_empty((nbytes // 4,), np.float32)
    assert array.shape == (nbytes // 4,)
    assert array.ctypes.data % ALIGNMENT == 0
    array[...] = 1
    np.testing.assert_array_equal(array, 1)


def test_memory_that_the_system_refuses() -> None:
    with pytest.raises(MemoryError, match=r"1000000000000000 bytes cannot be mapped"):
        aligned_empty((10**15,), np.uint8)


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
