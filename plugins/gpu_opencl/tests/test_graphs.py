"""Whole graphs: memory reuse, both kinds of queue, threads, batch 0, faults, operators' own kernels, errors."""

import copy
import dataclasses
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

from dovetail.device import Binary, DeviceError, DeviceInfo, Eltwise, Graph, OpenCLKernel, OutOfMemory, Refusal, Sum, TypedNode
from dovetail.errors import CompileError, DovetailError, InferError, UsageError
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, Operator
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.discovery import find_device
from dovetail_gpu_opencl.enqueue import KernelObject, calls, function
from dovetail_gpu_opencl.launch import Scalar
from dovetail_gpu_opencl.program import _quietly_build

SAMPLED = pytest.mark.exhaustive(0.25)  # each compiles programs

Floats = NDArray[np.float32]

UNARY: dict[str, Callable[[Any], Any]] = {
    "Tanh": np.tanh,
    "Neg": np.negative,
    "Sigmoid": lambda s: 1 / (1 + np.exp(-s)),
    "Abs": np.abs,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum}


def random_graph(rng: np.random.Generator, bench: Any, nodes: int) -> tuple[Graph, list[Floats], list[NDArray[np.float64]]]:
    """Elementwise operators, reductions, moves and products on [4, 9] tensors, and the outputs in float64."""
    g = GraphBuilder()
    feeds = [rng.standard_normal((4, 9)).astype(np.float32) for _ in range(2)]
    names = [g.input(f"x{i}", "float32", (4, 9)) for i in range(2)]
    values: dict[str, NDArray[np.float64]] = {n: f.astype(np.float64) for n, f in zip(names, feeds, strict=True)}
    weights = rng.standard_normal((9, 9)).astype(np.float32) / 3
    for _ in range(nodes):
        pick = [str(name) for name in rng.choice(names[-6:], 2)]
        kind = rng.integers(6)
        if kind < 2:
            op = str(rng.choice(list(UNARY)))
            name, value = g.node(bench.op(op), pick[0]), UNARY[op](values[pick[0]])
        elif kind < 4:
            op = str(rng.choice(list(BINARY)))
            name, value = g.node(bench.op(op), *pick), BINARY[op](values[pick[0]], values[pick[1]])
        elif kind == 4:
            mean = g.node(bench.op("ReduceMean"), pick[0], g.constant(np.array([1])))
            values[mean] = values[pick[0]].mean(axis=1, keepdims=True)
            name, value = g.node(bench.op("Sub"), pick[0], mean), values[pick[0]] - values[mean]
        else:
            turned = g.node(bench.op("Transpose", perm=(1, 0)), pick[0])
            back = g.node(bench.op("Transpose", perm=(1, 0)), turned)
            name, value = g.node(bench.op("MatMul"), back, g.constant(weights)), values[pick[0]] @ weights.astype(np.float64)
        names.append(name)
        values[name] = value
    outputs = names[-3:]
    return bench.typed(g.graph(outputs)), feeds, [values[name] for name in outputs]


@SAMPLED
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int, queue: str, device: OpenCLDevice, bench: Any) -> None:
    graph, feeds, expected = random_graph(np.random.default_rng(seed), bench, 25)
    executable = device.compile(graph, {"QUEUE": queue})
    assert executable.memory.peak < executable.memory.unshared
    request = executable.create_request()
    for _ in range(3):
        for got, want in zip(request.run(feeds), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_device_without_queues_out_of_order(device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, out_of_order=False))
    with pytest.raises(DeviceError, match="no out-of-order queues"):
        device.compile(Graph((), (), ()), {"QUEUE": "OUT_OF_ORDER"})


def test_a_graph_too_large_for_one_buffer_gets_several(info: DeviceInfo, queue: str, bench: Any) -> None:
    caps = dataclasses.replace(Capabilities.query(find_device(info.name)), max_allocation=512)
    device = OpenCLDevice(info, caps=caps)
    graph, feeds, expected = random_graph(np.random.default_rng(1), bench, 20)
    for got, want in zip(bench.run(device, graph, feeds, QUEUE=queue), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keep", [True, False])
def test_waits_of_an_out_of_order_queue(keep: bool, device: OpenCLDevice, bench: Any) -> None:
    """Each node waits for its true producers; where it overwrites dead memory, also for those that read that."""
    g = GraphBuilder()
    x = g.input("x", "float32", (4,))
    left, right = g.node(bench.op("Abs"), x), g.node(bench.op("Tanh"), x)
    negated = g.node(bench.op("Neg"), left)
    outputs = [g.node(bench.op("Add"), negated, right), left, right]
    graph = bench.typed(g.graph([*outputs, x] if keep else outputs))
    if not device.caps.out_of_order:
        pytest.skip("this device has no out-of-order queues")
    executable = device.compile(graph, {"QUEUE": "OUT_OF_ORDER"})
    offsets = executable.memory.offsets
    assert (offsets[negated] == offsets[x]) == (not keep)
    # Upload, Abs, Tanh, Neg, ...: Neg reads what Abs wrote, and perhaps overwrites x, which Tanh reads.
    assert executable.waits()[:4] == ((), (0,), (0,), (1,) if keep else (1, 2))


def test_two_requests_in_threads(device: OpenCLDevice, bench: Any) -> None:
    graph, feeds, _ = random_graph(np.random.default_rng(4), bench, 25)
    executable = device.compile(graph, {})
    alone = [r.copy() for r in executable.create_request().run(feeds)]
    wrong: list[str] = []

    def work(scale: np.float32) -> None:
        own = [f * scale for f in feeds]
        request = executable.create_request()
        first = [r.copy() for r in request.run(own)]
        for _ in range(30):
            for a, b in zip(first, request.run(own), strict=True):
                if not np.array_equal(a, b):
                    wrong.append("a later run differs")
        if scale == 1 and not all(np.array_equal(a, b) for a, b in zip(first, alone, strict=True)):
            wrong.append("differs from the run alone")

    threads = [threading.Thread(target=work, args=(np.float32(s),)) for s in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sum_takes_over_the_memory_of_its_operand(
    without_matrix_units: Callable[[str], OpenCLDevice], info: DeviceInfo, bench: Any, rng: np.random.Generator
) -> None:
    """relu(conv(a) + a): the result takes the place of a, and is right; a second reader of a prevents that."""
    device = without_matrix_units(info.kind)
    for keep in (False, True):
        g = GraphBuilder()
        x = g.input("x", "float32", (2, 16, 5, 7))
        a = g.node(bench.op("Abs"), x)
        w = rng.standard_normal((16, 16, 1, 1)).astype(np.float32)
        y = g.node(bench.op("Conv"), g.node(bench.op("Neg"), a), g.constant(w))
        graph = bench.typed(g.graph([y, a] if keep else [y]))
        *others, conv = graph.nodes
        conv = dataclasses.replace(conv, post_ops=(Sum(a), Eltwise("relu")))
        graph = graph.replace(nodes=(*others, conv))
        executable = device.compile(graph, {})
        assert (executable.memory.storage[y] == executable.memory.storage[a]) == (not keep)
        value = rng.standard_normal((2, 16, 5, 7)).astype(np.float32)
        wide = np.abs(value.astype(np.float64))
        expected = np.maximum(np.einsum("nchw,mc->nmhw", -wide, w[:, :, 0, 0]) + wide, 0)
        np.testing.assert_allclose(executable.create_request().run([value])[0], expected, rtol=1e-5, atol=1e-5)


def test_views_launch_nothing_and_outputs_may_be_anything(device: OpenCLDevice, bench: Any) -> None:
    """A view of an input, a constant, an input and a constant's view as outputs."""
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 6))
    c = g.constant(np.arange(6, dtype=np.float32))
    shape = g.constant(np.array([3, -1]))
    viewed, flat = g.node(bench.op("Reshape"), x, shape), g.node(bench.op("Reshape"), c, shape)
    graph = bench.typed(g.graph([viewed, c, x, flat]))
    executable = device.compile(graph, {})
    assert not executable.commands
    assert [r.kernel for r in executable.reports] == ["view", "view"]
    value = np.arange(12, dtype=np.float32).reshape(2, 6)
    results = executable.create_request().run([value])
    for got, want in zip(results, (value.reshape(3, 4), np.arange(6), value, np.arange(6).reshape(3, 2)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_batch_0(device: OpenCLDevice, queue: str, bench: Any, rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (0, 3, 8, 8))
    w = g.constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    y = g.node(bench.op("Relu"), g.node(bench.op("Conv"), x, w))
    pooled = g.node(bench.op("GlobalAveragePool"), g.node(bench.op("MaxPool", kernel_shape=(2, 2)), y))
    flat = g.node(bench.op("Flatten"), pooled)
    out = g.node(bench.op("Softmax"), g.node(bench.op("MatMul"), flat, g.constant(np.ones((4, 5), np.float32))))
    total = g.node(bench.op("ReduceSum", keepdims=False), out)
    graph = bench.typed(g.graph([out, total]))
    empty, zero = bench.run(device, graph, [np.zeros((0, 3, 8, 8), np.float32)], QUEUE=queue)
    assert empty.shape == (0, 5)
    assert zero == 0


@SAMPLED
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_gather_out_of_range_names_the_node(dtype: type, queue: str, device: OpenCLDevice, bench: Any) -> None:
    g = GraphBuilder()
    x, i = g.input("x", "float32", (5, 3)), g.input("i", np.dtype(dtype).name, (2,))
    safe = g.node(bench.op("Gather", axis=1), x, g.constant(np.array([0, -1])), name="safe")
    graph = bench.typed(g.graph([g.node(bench.op("Gather"), safe, i, name="risky")]))
    request = device.compile(graph, {"QUEUE": queue}).create_request()
    value = np.arange(15, dtype=np.float32).reshape(5, 3)
    for _ in range(2):
        for bad in (5, -6, np.iinfo(dtype).max, np.iinfo(dtype).min):
            with pytest.raises(InferError, match=r"node 'risky' \(Gather\): an index is outside axis 0 of size 5"):
                request.run([value, np.array([0, bad], dtype)])
        got = request.run([value, np.array([4, -5], dtype)])[0]
        np.testing.assert_array_equal(got, value[[4, 0]][:, [0, 2]])


class Shift(Operator):
    """x + by, with a kernel of its own."""

    domain = "test.shift"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    by: float = 1.0
    kernels = (
        OpenCLKernel(
            source="__kernel void shift(__global const float* x, __global float* y, float by, int n) {\n"
            "  for (int i = 2 * get_global_id(0); i < 2 * (int)get_global_id(0) + 2; ++i) y[i] = x[i] + by + n; }",
            entry={"float32": "shift"},
            scalars=(("by", "float"), ("extra", "int")),
            global_size=lambda inputs, outputs: (outputs[0].size // 2,),
            local_size=None,
        ),
    )
    extra: int = 0


def test_an_operators_own_kernel(device: OpenCLDevice, bench: Any) -> None:
    x = np.arange(8, dtype=np.float32)
    graph, feeds = bench.single(Shift(by=0.5, extra=2), [x])
    executable = device.compile(graph, {})
    assert [(r.kernel, r.from_operator) for r in executable.reports] == [("shift", True)]
    np.testing.assert_array_equal(executable.create_request().run(feeds)[0], x + 2.5)
    typed = TypedNode.of(
        *bench.single(Shift(), [x.astype(np.float64)])[0].nodes, bench.single(Shift(), [x.astype(np.float64)])[0]
    )
    refusal = device.supports(typed)
    assert isinstance(refusal, Refusal)
    chained, _ = bench.single(Shift(), [x], post_ops=[Eltwise("relu")])
    assert "applies none" in str(device.supports(TypedNode.of(chained.nodes[0], chained)))


class Doubled(Operator):
    """2 x: a pack's elementwise operator without a kernel, known by its post-op."""

    domain = "test.shift"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def post_ops(self, types: Any, names: Any, chained: int) -> Any:
        return (Eltwise("linear", 2.0, 0.0),)


def test_a_packs_post_op_becomes_a_kernel(device: OpenCLDevice, bench: Any) -> None:
    x = np.arange(70, dtype=np.float32)
    graph, feeds = bench.single(Doubled(), [x], post_ops=[Binary("add", "c")], operands={"c": x})
    assert device.compile(graph, {}).reports[0].kernel == "chain"
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], 3 * x)


def test_what_has_no_kernel_is_refused_with_a_reason(device: OpenCLDevice, bench: Any) -> None:
    graph, _ = bench.single(bench.op("Det"), [np.zeros((2, 2), np.float32)])
    answer = device.supports(TypedNode.of(graph.nodes[0], graph))
    assert isinstance(answer, Refusal)
    assert str(answer) == "no kernel for this operator: Det"
    with pytest.raises(CompileError, match=r"node 'node' \(Det\) was not accepted by OPENCL"):
        device.compile(graph, {})


def test_refused_memory(info: DeviceInfo, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every allocation in turn: an `OutOfMemory` that says how much, and afterwards everything works."""
    device = OpenCLDevice(info)
    graph, feeds, expected = random_graph(np.random.default_rng(2), bench, 10)
    real = cl.Buffer
    countdown = [0]

    def scarce(*args: Any, **kwargs: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] == 0:
            code = cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
            raise cl.MemoryError(cl._cl._ErrorRecord(msg="refused", code=code, routine="create_buffer"))
        return real(*args, **kwargs)

    monkeypatch.setattr(cl, "Buffer", scarce)
    device.compile(graph, {}).create_request()
    buffers = -countdown[0]
    assert buffers >= 3
    for at in range(1, buffers + 1):
        gc.collect()  # the frames of the error before, which refer to it, keep constants that the next plan would share
        countdown[0] = at
        with pytest.raises(OutOfMemory, match=r"bytes|fault flags"):
            device.compile(graph, {}).create_request()
    countdown[0] = 0
    for got, want in zip(bench.run(device, graph, feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_closed_request_says_so(device: OpenCLDevice, bench: Any) -> None:
    graph, feeds = bench.single(bench.op("Relu"), [np.ones(3, np.float32)])
    request = device.compile(graph, {}).create_request()
    request.run(feeds)
    request.close()
    with pytest.raises(UsageError, match="closed"):
        request.run(feeds)


@pytest.mark.parametrize("dtype", ["float16", "bool", "int8", "uint64", "float64"])
def test_moves_need_no_extension(dtype: str, info: DeviceInfo, bench: Any, rng: np.random.Generator) -> None:
    """Data of every type is moved, in words of every width, also where the device cannot compute with it."""
    caps = dataclasses.replace(Capabilities.query(find_device(info.name)), fp16=False, fp64=False)
    device = OpenCLDevice(info, caps=caps)
    x = rng.integers(0, 2, (3, 4, 8)).astype(dtype)
    for op, extra, expected in (
        (bench.op("Transpose", perm=(1, 0, 2)), [], x.transpose(1, 0, 2)),
        (bench.op("Gather", axis=1), [np.array([2, 0])], x[:, [2, 0]]),
        (bench.op("Expand"), [np.array([2, 3, 4, 8])], np.broadcast_to(x, (2, 3, 4, 8))),
        (bench.op("Reshape"), [np.array([-1, 2])], x.reshape(-1, 2)),
        (bench.op("Slice"), [np.array([1]), np.array([8]), np.array([2]), np.array([3])], x[:, :, 1:8:3]),
        (bench.op("Pad"), [np.array([0, 1, 1, 0, 0, 2])], np.pad(x, ((0, 0), (1, 0), (1, 2)))),
        (bench.op("Tile"), [np.array([1, 2, 3])], np.tile(x, (1, 2, 3))),
    ):
        graph, feeds = bench.single(op, [x, *extra], tuple(range(1, 1 + len(extra))))
        np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], expected)
    if dtype == "float64":  # float16 is loaded and stored by functions that need no extension
        graph, _ = bench.single(bench.op("Relu"), [x])
        assert "needs cl_khr_fp64" in str(device.supports(TypedNode.of(graph.nodes[0], graph)))


def test_launches_without_events_tell_errors_and_which_node(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """As requests of GPUs launch; the second launch has groups that do not divide its items."""
    g = GraphBuilder()
    x = g.input("x", "float32", (5, 5))
    y = g.node(bench.op("MatMul"), x, x, outputs=["y"], name="first")
    g.node(bench.op("MatMul"), y, x, outputs=["z"], name="second")
    executable = kind_device("GPU").compile(bench.typed(g.graph(["z"])), {})
    request = executable.create_request()
    array = rng.standard_normal((5, 5)).astype(np.float32)
    expected = np.linalg.matrix_power(array.astype(np.float64), 3)
    np.testing.assert_allclose(request.run([array])[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert len(request._calls) == len(request._bound) == 2
    (one, size, _) = request._bound[1]
    request._bound[1] = (one, size, tuple(n + 1 for n in size))
    request._calls = [*calls(request._queue, request._bound)]
    with pytest.raises(DovetailError, match="second"):
        request.run([array])
    request.close()
    assert not request._calls


@pytest.mark.parametrize(("kind", "unified", "waits"), [("CPU", True, 0), ("GPU", False, 1)])
def test_only_requests_of_gpus_wait_before_they_copy_results(
    kind: str, unified: bool, waits: int, info: DeviceInfo, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a CPU waits once, for the copy."""
    caps = dataclasses.replace(Capabilities.query(find_device(info.name)), kind=kind, unified_memory=unified)
    graph, feeds = bench.single(bench.op("Relu"), [np.linspace(-1, 1, 2**17, dtype=np.float32)])
    request = OpenCLDevice(info, caps=caps).compile(graph, {}).create_request()
    finish, seen = cl.CommandQueue.finish, []
    monkeypatch.setattr(cl.CommandQueue, "finish", lambda queue: seen.append(1) or finish(queue))
    held = [request.run(feeds) for _ in range(3)]  # who holds results gets no locked memory for further ones
    seen.clear()
    held.append(request.run(feeds))
    for (result,) in held:
        np.testing.assert_array_equal(result, np.maximum(feeds[0], 0))
    assert len(seen) == waits


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")
@pytest.mark.parametrize("is_found", [True, False])
def test_arguments(is_found: bool, info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of all kinds, by OpenCL itself, and by pyopencl where a loader does not let that be found."""
    if not is_found:
        monkeypatch.setattr("dovetail_gpu_opencl.enqueue.function", lambda name: None)
    context = cl.Context([find_device(info.name)])
    queue = cl.CommandQueue(context)
    source = """__kernel void put(__global long* to, const char a, const short b, const int c, const long d, const float e,
                                  __global const int* none, __local int* room) {
      room[get_local_id(0)] = none == 0;
      to[0] = a; to[1] = b; to[2] = c; to[3] = d; to[4] = as_int(e); to[5] = room[get_local_id(0)]; }"""
    result = np.zeros(6, np.int64)
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, result.nbytes)
    numbers = (np.int8(-7), np.int16(-300), np.int32(-70_000), np.int64(-(2**40)), np.float32(-1.5))
    bound = KernelObject(cl.Program(context, source).build(), "put")

    def run() -> list[int]:
        (launch,) = calls(queue, [(bound, (1,), (1,))])
        if not is_found or launch():
            assert not is_found
            cl.enqueue_nd_range_kernel(queue, bound.kernel, (1,), (1,))
        cl.enqueue_copy(queue, result, buffer)
        return [int(number) for number in result]

    bound.set_place(0, buffer)
    for position, number in enumerate(numbers, 1):
        bound.set_number(position, Scalar(number))
    bound.set_place(6, None)
    bound.set_local(7, 4)
    assert run() == [*map(int, numbers[:4]), int(np.float32(-1.5).view(np.int32)), 1]
    wrong, first = Scalar(np.int64(1)), Scalar(np.int8(5))
    for _ in range(2):
        with pytest.raises(cl.Error, match="INVALID_ARG_SIZE"):
            bound.set_number(3, wrong)
    with pytest.raises(cl.Error):
        bound.set_place(99, buffer)
    with pytest.raises(cl.Error):
        bound.set_local(99, 4)
    with pytest.raises(cl.Error, match="INVALID_KERNEL_NAME"):
        KernelObject(bound.kernel.program, "another")
    bound.set_number(1, first)
    bound.set_number(2, Scalar(np.int16(6)))
    assert bound.numbers[1] is first
    assert run()[:3] == [5, 6, -70_000]


def test_a_copy_of_a_kernel_object_has_its_arguments(info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where drivers copy them; elsewhere it is a new one. Each has its own arguments then, and remembers its numbers."""
    device = OpenCLDevice(info)
    context, programs = device._context, device.programs
    queue, result = cl.CommandQueue(context), np.zeros(2, np.int32)
    first, second = (cl.Buffer(context, cl.mem_flags.WRITE_ONLY, result.nbytes) for _ in range(2))
    source = "__kernel void put(__global int* to, const int a, const int b) { to[0] = a; to[1] = b; }"
    program = _quietly_build(cl.Program(context, source), [])
    one, two = programs.kernel(program, "put"), Scalar(np.int32(5))
    one.set_place(0, first)
    one.set_number(1, two)
    one.set_number(2, Scalar(np.int32(7)))
    other = programs.kernel(program, "put", one)
    assert bool(other.numbers) is programs._copies
    if info.kind != "CPU":
        assert not programs._copies
        return
    assert programs._copies  # PoCL does
    assert other.numbers[1] is two
    other.set_place(0, second)
    other.set_number(2, Scalar(np.int32(9)))
    assert one.numbers[2].value == 7
    for kernel, buffer, wanted in ((one, first, [5, 7]), (other, second, [5, 9])):
        cl.enqueue_nd_range_kernel(queue, kernel.kernel, (1,), (1,))
        cl.enqueue_copy(queue, result, buffer)
        np.testing.assert_array_equal(result, wanted)
    monkeypatch.setattr(
        "dovetail_gpu_opencl.enqueue.function", lambda name: (lambda *_: None) if "Clone" in name else function(name)
    )
    assert not KernelObject(program, "put", one).numbers  # the driver lacks memory: a new one


def test_kernel_objects_are_released(info: DeviceInfo) -> None:
    """Those made past pyopencl, with and without its object beside them."""
    context = cl.Context([find_device(info.name)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NVIDIA's driver says that a kernel may be inlined
        program = cl.Program(context, "__kernel void one(__global int* to) { to[0] = 1; }").build()
    bound = KernelObject(program, "one")
    kernel = bound.kernel
    both = kernel.reference_count  # drivers may hold it, too
    del bound
    assert kernel.reference_count == both - 1


@pytest.mark.parametrize("algorithm", ["div", "rdiv", "mul"])
def test_post_ops_that_divide_round_right(algorithm: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """GPUs divide less exactly unless a program asks: it does exactly where a chain divides."""
    device = copy.copy(kind_device("GPU"))
    device._bound, device.caps = {}, dataclasses.replace(device.caps, exact_division=True)
    x, other = rng.standard_normal((3, 50)).astype(np.float32), rng.random((3, 1)).astype(np.float32) + 1
    op = bench.op("ReduceMax", keepdims=1)
    post_ops = [Binary(algorithm, "other")]
    graph, feeds = bench.single(op, [x, np.array([1])], (1,), post_ops=post_ops, operands={"other": other})
    executable = device.compile(graph, {})
    (got,) = executable.create_request().run(feeds)
    top = x.max(1, keepdims=True)
    np.testing.assert_array_equal(got, {"div": top / other, "rdiv": other / top, "mul": top * other}[algorithm])
    asked = {"-cl-fp32-correctly-rounded-divide-sqrt" in command.launch.options for command in executable.commands}
    assert asked == {algorithm != "mul"}
