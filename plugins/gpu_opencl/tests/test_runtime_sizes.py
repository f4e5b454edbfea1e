"""Programs serve every shape: sizes of batches, lengths and images are arguments, so that a new shape compiles nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from dovetail.device import NHWC, Eltwise, TypedNode
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._gemm_tiled import GemmTiled
from dovetail_gpu_opencl.kernels._tiles import Tiling
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned
from dovetail_gpu_opencl.program import Programs
from dovetail_gpu_opencl.sizes import RuntimeSizes, by_value
from dovetail_gpu_opencl.source import load
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

Build = Callable[[Any, int, int], Sequence[Any]]
"""Makes the inputs for a batch and a size."""


def image(rng: Any, batch: int, size: int, channels: int = 16) -> Any:
    return rng.standard_normal((batch, channels, size, size + 8)).astype(np.float32)


def images(rng: Any, batch: int, size: int) -> Sequence[Any]:
    return [image(rng, batch, size)]


def convolution(maps: int, channels: int, side: int) -> Build:
    weights = np.linspace(-1, 1, maps * channels * side * side, dtype=np.float32).reshape(maps, channels, side, side)
    return lambda rng, batch, size: [image(rng, batch, size), weights, np.linspace(-1, 1, maps, dtype=np.float32)]


def rows(*others: Any) -> Build:
    return lambda rng, batch, size: [rng.standard_normal((batch, size, 24)).astype(np.float32), *others]


def broadcast(*dims: int | None) -> Build:
    """An image, and an operand of these dimensions; None stands for those of the image."""

    def build(rng: Any, batch: int, size: int) -> Sequence[Any]:
        x = image(rng, batch, size)
        own = [x.shape[4 - len(dims) + axis] if d is None else d for axis, d in enumerate(dims)]
        return [x, rng.standard_normal(own).astype(np.float32)]

    return build


def heads(rng: Any, batch: int, size: int) -> Sequence[Any]:
    qkv = [rng.standard_normal((batch, 4, size, 16)).astype(np.float32) for _ in range(3)]
    return [*qkv, rng.standard_normal((batch, 1, size, size)).astype(np.float32)]


def lookups(rng: Any, batch: int, size: int) -> Sequence[Any]:
    return [np.arange(50 * 24, dtype=np.float32).reshape(50, 24), rng.integers(-50, 50, (batch, size))]


def two_images(rng: Any, batch: int, size: int) -> Sequence[Any]:
    return [image(rng, batch, size), image(rng, batch, size, 8)]


ONES = np.ones(24, np.float32)
CASES: dict[str, tuple[str, dict[str, Any], Build]] = {
    "convolution": ("Conv", {"strides": (2, 2), "pads": (1, 1, 1, 1)}, convolution(24, 16, 3)),
    "pointwise": ("Conv", {}, convolution(24, 16, 1)),
    "depthwise": ("Conv", {"group": 16, "pads": (1, 1, 1, 1)}, convolution(16, 1, 3)),
    "max_pool": ("MaxPool", {"kernel_shape": (3, 3), "strides": (2, 2)}, images),
    "average_pool": ("AveragePool", {"kernel_shape": (3, 2), "pads": (1, 0, 1, 1), "count_include_pad": 1}, images),
    "global_average_pool": ("GlobalAveragePool", {}, images),
    "reduce_mean": ("ReduceMean", {"keepdims": 0}, rows(np.array([1]))),
    "transpose": ("Transpose", {"perm": (0, 2, 3, 1)}, images),
    "mat_mul": ("MatMul", {}, rows(np.linspace(-1, 1, 24 * 40, dtype=np.float32).reshape(24, 40))),
    "layer_normalization": ("LayerNormalization", {}, rows(ONES, ONES)),
    "softmax": ("Softmax", {}, rows()),
    "relu": ("Relu", {}, images),
    "channels": ("Add", {}, broadcast(16, 1, 1)),
    "lines": ("Mul", {}, broadcast(None, 1)),
    "columns": ("Sub", {}, broadcast(1, None)),
    "attention": ("Attention", {}, heads),
    "gather": ("Gather", {}, lookups),
    "concat": ("Concat", {"axis": 1}, two_images),
}
CONSTANT = {"Conv": (1, 2), "MatMul": (1,), "LayerNormalization": (1, 2), "ReduceMean": (1,)}
"""The positions of the inputs that are constant."""


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The sources of all programs that are asked for."""
    found: set[str] = set()
    inner = Programs.get

    def get(self: Programs, launch: Any, node: str) -> Any:
        found.add(launch.source)
        return inner(self, launch, node)

    monkeypatch.setattr(Programs, "get", get)
    return found


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("case", CASES)
def test_a_new_shape_takes_the_same_programs(
    case: str,
    kind: str,
    without_matrix_units: Callable[[str], Any],
    bench: Any,
    sources: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both shapes are computed right, too, one after the other. Tilings, which depend on sizes and compute units, are the same
    here, and so are layouts.
    """
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: self.default(replace(problem, key="", m=64, n=64)))
    device, rng, (name, attributes, build) = without_matrix_units(kind), np.random.default_rng(9), CASES[case]
    device.caps = replace(device.caps, compute_units=2)
    chained = name in ("Conv", "MatMul", "Relu", "Add")
    made = []
    for sizes in ((2, 17), (3, 25)):
        inputs, known = build(rng, *sizes), set(sources)
        op, options = bench.op(name, **attributes), {"post_ops": [Eltwise("relu")]} if chained else {}
        graph, feeds = bench.single(op, inputs, CONSTANT.get(name, ()), **options)
        made.append((device.compile(graph, {}).create_request(), feeds, op.reference(*inputs)))
        assert not known or sources == known, f"{len(sources - known)} programs of their own"
    assert sources
    for request, feeds, reference in made:
        expected = np.asarray(reference[0] if isinstance(reference, tuple) else reference)
        np.testing.assert_allclose(request.run(feeds)[0], np.maximum(expected, 0) if chained else expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [20, 32])
@pytest.mark.parametrize("name", ["MaxPool", "GlobalAveragePool"])
def test_8_bit_images_of_any_size_share_a_program(
    name: str, channels: int, kind_device: Callable[[str], Any], bench: Any, sources: set[str]
) -> None:
    """On GPUs, channels innermost; 20 channels do not fill vectors."""
    device, rng, one = kind_device("GPU"), np.random.default_rng(4), Scaling(np.float32(1), np.uint8(0))
    op = bench.op(name, **({"kernel_shape": (3, 2), "pads": (1, 0, 1, 1)} if name == "MaxPool" else {}))
    quantized = op if name == "MaxPool" else Quantized([QuantizedStep(op, (0,))], [one], one)
    for batch, height, width in ((1, 9, 5), (3, 9, 5), (2, 4, 7)):
        x = rng.integers(0, 256, (batch, channels, height, width)).astype(np.uint8)
        graph, _ = bench.single(quantized, [x])
        laid = graph.replace(types={n: t.with_layout(NHWC) for n, t in graph.types.items()})
        (got,) = bench.run(device, laid, [np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(x.shape)])
        expected = np.rint(x.mean((2, 3), keepdims=True)) if name != "MaxPool" else op.reference(x)[0]
        shape = (batch, *expected.shape[2:], channels)
        np.testing.assert_array_equal(np.moveaxis(got.reshape(shape), -1, 1), expected)
    assert len(sources) == 1


@pytest.mark.parametrize(
    "case", ["attention", "relu", "concat", "gather", "transpose", "softmax", "reduce_mean", "layer_normalization"]
)
def test_cpus_compile_nothing_for_other_lengths(
    case: str, without_matrix_units: Callable[[str], Any], bench: Any, sources: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a program nor, as PoCL does for each local size, a kernel once more. Results are right for all lengths."""
    device, rng, (name, attributes, build) = without_matrix_units("CPU"), np.random.default_rng(9), CASES[case]
    op, known, local_sizes = bench.op(name, **attributes), set[str](), set[Any]()
    for size in (2, 4, 24, 40, 72, 136, 264):
        inputs = build(rng, 2, size)
        graph, feeds = bench.single(op, inputs, CONSTANT.get(name, ()))
        executable = device.compile(graph, {})
        local_sizes |= {(c.launch.entry, c.launch.local_size) for c in executable.commands}
        known = known or set(sources)
        reference = op.reference(*inputs)
        expected = np.asarray(reference[0] if isinstance(reference, tuple) else reference)
        np.testing.assert_allclose(executable.create_request().run(feeds)[0], expected, rtol=1e-4, atol=1e-5)
    assert sources == known
    assert len(local_sizes) == len({entry for entry, _ in local_sizes})


class Chosen(GemmTiled):
    """Takes 16 and 64 rows a tile for these or more rows; another one takes longer by what the numbers differ."""

    def possible(self, problem: Problem) -> list[Tiling]:
        return [Tiling(rows, 16, 16, 4, 4) for rows in (16, 64)]

    def cost(self, problem: Problem, parameters: Tiling) -> float:
        return 1 + abs(problem.m - parameters.tile_m) / 100

    def default(self, problem: Problem) -> Tiling:
        return min(self.possible(problem), key=lambda tiling: self.cost(problem, tiling))


def test_a_tiling_that_is_built_is_taken_where_it_is_almost_as_fast(
    device: OpenCLDevice, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows_of(kernel: Chosen, rows: int, name: str = "a") -> int:
        graph, _ = bench.single(bench.op("MatMul"), [np.ones((rows, 8), np.float32), np.ones((8, 8), np.float32)], (1,))
        node = TypedNode.of(replace(graph.nodes[0], name=name), graph)
        return kernel.settled(Problem(f"{rows}", 1, rows, 8, 8, 4), node).tile_m

    kernel = Chosen(lambda node: None).on(device.caps)
    assert [rows_of(kernel, 16), rows_of(kernel, 44), rows_of(kernel, 60), rows_of(kernel, 38)] == [16, 16, 64, 16]
    assert rows_of(kernel, 44, "b") == 64  # another node has built nothing
    assert rows_of(Chosen(lambda node: None).on(device.caps), 44) == 64  # nor has another compilation
    monkeypatch.setattr(kernel.packed, "tunings", {"24": Tiling(64, 16, 16, 4, 4).numbers()})
    assert rows_of(Chosen(lambda node: None).on(device.caps, kernel.packed), 24) == 64  # the tuned one


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")  # remarks of NVIDIA's compiler on every kernel
def test_quotients_are_exact_on_the_device(device: OpenCLDevice) -> None:
    rng = np.random.default_rng(5)
    divisors = [1, 2, 3, 5, 7, 641, 2**16 + 1, 2**30, 2**30 + 1, 2**31 - 1, *map(int, rng.integers(1, 2**31, 40))]
    near = np.concatenate([[d - 1, d, d + 1, 2 * d - 1, 2**31 - 1 - 2**31 % d] for d in divisors])
    x = np.clip(np.concatenate([[0, 1, 2**31 - 2, 2**31 - 1], near, rng.integers(0, 2**31, 500)]), 0, 2**31 - 1).astype(np.int32)
    _, (d, factor, shift) = by_value({"D": 3}, (), ("D",))
    assert [int(n.value) for n in (d, factor)] == [3, -(-(2**33) // 3)]
    assert int(shift.value) == 2
    text = (
        load("quotients.cl")
        + "__kernel void divide(__global const int* x, __global int2* y, const int D, const uint D_factor, const int D_shift) {"
        " const int i = get_global_id(0); y[i] = (int2)(QUOTIENT(x[i], D), REMAINDER(x[i], D)); }"
    )
    context = device._context
    divide, queue = cl.Program(context, text).build().divide, cl.CommandQueue(context)
    flags = cl.mem_flags.COPY_HOST_PTR
    source, result = cl.Buffer(context, flags, hostbuf=x), np.empty((x.size, 2), np.int32)
    target = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, result.nbytes)
    for divisor in divisors:
        sizes = RuntimeSizes()
        sizes.divisor(divisor, "D")
        divide(queue, x.shape, None, source, target, *(s.value for s in sizes.arguments))
        cl.enqueue_copy(queue, result, target)
        np.testing.assert_array_equal(result[:, 0], x // divisor)
        np.testing.assert_array_equal(result[:, 1], x % divisor)


def test_numbers_of_the_same_key_are_one_argument() -> None:
    sizes = RuntimeSizes("p")
    assert [sizes.number(4, "a"), sizes.number(4, "b"), sizes.number(4, "a")] == ["p0", "p1", "p0"]
    assert sizes.divisor(4, "a") == "p2"
    assert sizes.parameters == ", const int p0, const int p1, const int p2, const uint p2_factor, const int p2_shift"
    assert sizes.passed == ", p0, p1, p2, p2_factor, p2_shift"
    assert len(sizes.arguments) == 5
