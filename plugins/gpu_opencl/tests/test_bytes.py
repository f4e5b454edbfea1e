"""Products and convolutions in tiles of bytes, as devices of kind GPU choose them, against integer arithmetic."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import NHWC, PLAIN, DeviceInfo, DType, Graph, TypedNode
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels import _byte_results
from dovetail_gpu_opencl.kernels._byte_lines import Line, Pairs, fitted
from dovetail_gpu_opencl.kernels._bytes import has_matrix_units, instructions
from dovetail_gpu_opencl.kernels._pipelined import Pipeline
from dovetail_gpu_opencl.kernels._quantized_steps import Refused
from dovetail_gpu_opencl.kernels._tuned import Tuned
from dovetail_gpu_opencl.launch import Constant, Scratch
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

pytestmark = pytest.mark.exhaustive(0.08)  # each test compiles programs

Array = NDArray[Any]
TILINGS = [Pipeline(32, 32, 32, 16, 16, 3), Pipeline(32, 16, 64, 32, 16, 2)]
TYPES = [(np.uint8, np.int8, np.uint8), (np.int8, np.int8, np.int8), (np.uint8, np.uint8, np.int8), (np.int8, np.uint8, np.uint8)]
"""Of the first factor, the second, and the result."""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of kind GPU that takes all problems in the first tiling."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: TILINGS[0])
    found = kind_device("GPU")
    yield found
    found.forced = ""


def scaling(scale: Any, zero: Any, dtype: Any, axis: int = 1) -> Scaling:
    scales = np.asarray(scale, np.float32)
    return Scaling(scales, np.broadcast_to(np.asarray(zero, dtype), scales.shape), axis)


def stored(real: Array, to: Scaling) -> Array:
    """The formula of QuantizeLinear in the precision of `real`."""
    limits = np.iinfo(to.dtype.numpy)
    whole = np.rint(real / to.scale.astype(real.dtype)) + to.zero_point.astype(real.dtype)
    return np.clip(whole, limits.min, limits.max).astype(to.dtype.numpy)


def numbers(rng: Any, dtype: Any, *dims: int) -> Array:
    """All numbers of a type but the least, so that those of int8 fit with a zero point of 1."""
    limits = np.iinfo(dtype)
    found: Array = rng.integers(limits.min + 1, limits.max, dims, dtype, endpoint=True)
    return found


def zero_of(dtype: Any) -> int:
    """A zero point of weights that leaves them within int8."""
    return 128 if dtype == np.uint8 else 0


CASES = [  # batch, channels, maps, height, width, kernel, stride, dilation, pads
    (2, 16, 24, 6, 5, 1, 1, 1, (0, 0, 0, 0)),  # a plain product
    (1, 32, 40, 7, 6, 3, 1, 1, (1, 1, 1, 1)),
    (2, 48, 13, 9, 7, 3, 2, 1, (1, 0, 1, 2)),  # maps that are stored one at a time
    (1, 3, 16, 11, 12, 5, 2, 1, (2, 2, 2, 2)),  # two pixels of four channels as one of eight
    (2, 4, 16, 10, 13, 4, 2, 1, (0, 3, 1, 0)),
    (2, 3, 16, 6, 7, 3, 1, 1, (1, 1, 1, 1)),  # filled up to 8 channels
    (2, 21, 8, 8, 9, 2, 1, 3, (0, 1, 2, 1)),  # and to 32
    (1, 16, 8, 9, 9, 1, 2, 1, (0, 0, 0, 0)),
]


def sums_of(x: Array, w: Array, case: Sequence[Any]) -> NDArray[np.int64]:
    """The convolution in int64, window by window; zeros outside."""
    *_, stride, dilation, pads = case
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    extent = dilation * (w.shape[2] - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(wide, (extent, extent), (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int64))


def innermost(a: Array) -> Array:
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1)).reshape(a.shape)


def laid_out(graph: Graph, images: Sequence[str]) -> Graph:
    """The graph with channels innermost in these values."""
    return graph.replace(types={n: t.with_layout(NHWC) if n in images else t for n, t in graph.types.items()})


def run_images(device: Any, bench: Any, graph: Graph, feeds: Sequence[Array], source: Any) -> Array:
    """The result of a node whose result has its channels innermost, and whose first input has this layout."""
    images = {n for n, t in graph.types.items() if t.dims == graph.types["y0"].dims and n != "x0"} | {"y0"}
    images |= {"x0"} if source == NHWC else set()
    fed = list(graph.inputs)
    given = [innermost(a) if n in images else a for n, a in zip(fed, feeds, strict=True)]
    (got,) = bench.run(device, laid_out(graph, sorted(images)), given, DEBUG_BUFFERS=True)
    found: Array = got.reshape(got.shape[0], *got.shape[2:], got.shape[1]).transpose(0, 3, 1, 2)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_images_of_other_sizes_have_the_same_programs(case: Sequence[Any], device: Any, bench: Any, rng: Any) -> None:
    batch, channels, maps, height, width, size, stride, dilation, pads = case
    w, found = numbers(rng, np.int8, maps, channels, size, size), dict[Any, list[list[str]]]()
    conv = bench.op("ConvInteger", strides=(stride,) * 2, dilations=(dilation,) * 2, pads=pads)
    for n, h, v in ((batch, height, width), (1, height + 8, width + 2), (4, height, width + 14)):
        graph, _ = bench.single(conv, [np.zeros((n, channels, h, v), np.uint8), w], (1,))
        node = TypedNode.of(graph.nodes[0], graph)
        kernel = next(kernel for kernel in device.kernels(node) if kernel.name == "conv_bytes")
        for source in {config.inputs[0] for config in kernel.configurations(node)}:
            laid = laid_out(graph, ("x0", "y0") if source == NHWC else ("y0",))
            launches = kernel.launches(TypedNode.of(laid.nodes[0], laid))
            found.setdefault(source, []).append([launch.source for launch in launches])
    assert all(len(sources) == 3 and sources[0] == sources[1] == sources[2] for sources in found.values())


def test_convolutions_may_share_weights(device: Any, bench: Any, rng: Any) -> None:
    """By steps of two pixels these are taken as one, and the weights are in another order."""
    w, kept = numbers(rng, np.int8, 8, 3, 4, 4), []
    for stride in (2, 1):
        x = numbers(rng, np.uint8, 1, 3, 9, 10)
        graph, feeds = bench.single(bench.op("ConvInteger", strides=(stride,) * 2), [x, w], (1,))
        executable = device.compile(laid_out(graph, ("y0",)), {})
        kept.append(executable)
        (got,) = executable.create_request().run(feeds)
        expected = sums_of(x, w, (stride, 1, (0,) * 4))
        found = got.reshape(got.shape[0], *got.shape[2:], got.shape[1]).transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(found, expected, strict=False)


@pytest.mark.parametrize("types", TYPES, ids=lambda t: "-".join(np.dtype(d).name for d in t))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_quantized_convolutions(case: Sequence[Any], types: Sequence[Any], device: Any, bench: Any, rng: Any) -> None:
    """With a bias, a scale for each channel, a sum with an image and a Relu, which round as QuantizeLinear says."""
    batch, channels, maps, height, width, size, stride, dilation, pads = case
    x, w = numbers(rng, types[0], batch, channels, height, width), numbers(rng, types[1], maps, channels, size, size)
    zero = 77 if types[0] == np.uint8 else -11
    sx, sw = scaling(0.02, zero, types[0]), scaling(rng.random(maps) * 0.01 + 0.001, zero_of(types[1]), types[1], 0)
    unit, counts = sx.scale.astype(np.float64) * sw.scale.astype(np.float64), rng.integers(-9999, 9999, maps)
    total = sums_of(x.astype(np.int64) - zero, w.astype(np.int64) - zero_of(types[1]), case) + counts.reshape(-1, 1, 1)
    real = total * unit.reshape(-1, 1, 1)
    middle, other, last = (
        scaling(real.std() / 40, 100, np.uint8),
        scaling(real.std() / 50, -3, np.int8),
        scaling(real.std() / 30, 7, types[2]),
    )
    addend = numbers(rng, np.int8, *real.shape)
    conv = bench.op("Conv", strides=(stride,) * 2, pads=pads, dilations=(dilation,) * 2)
    steps = [
        QuantizedStep(conv, (0, 1, 2)),
        middle,
        QuantizedStep(bench.op("Add"), (3, -1)),
        QuantizedStep(bench.op("Relu"), (-1,)),
    ]
    op = Quantized(steps, [sx, sw, None, other], last)
    graph, feeds = bench.single(op, [x, w, (counts * unit).astype(np.float32), addend], (1, 2))
    device.forced = "quantized_conv_bytes"
    dequantized = [
        (a.astype(np.float32) - s.zero_point.astype(np.float32)) * s.scale
        for a, s in ((stored(real, middle), middle), (addend, other))
    ]
    expected = stored(np.maximum(dequantized[1] + dequantized[0], np.float32(0)), last)
    layouts = [NHWC] if channels % 16 == 0 else [NHWC, PLAIN]
    for layout in layouts:
        np.testing.assert_array_equal(run_images(device, bench, graph, feeds, layout), expected, str(layout))
    assert len(np.unique(expected)) > 30


@pytest.mark.parametrize("zero", [0, 201])
def test_integer_convolutions(zero: int, device: Any, bench: Any, rng: Any) -> None:
    """Elements outside the image count as its zero point; all sums are exact."""
    case = CASES[2]
    x, w = numbers(rng, np.uint8, 2, 48, 9, 7), numbers(rng, np.int8, 13, 48, 3, 3)
    op = bench.op("ConvInteger", strides=(2, 2), pads=case[-1])
    graph, feeds = bench.single(op, [x, w, np.array(zero, np.uint8)], (1, 2))
    device.forced = "conv_bytes"
    np.testing.assert_array_equal(run_images(device, bench, graph, feeds, NHWC), sums_of(x.astype(np.int64) - zero, w, case))


def test_nothing_is_computed_of_no_images(device: Any, bench: Any) -> None:
    x, w = np.zeros((0, 16, 4, 4), np.uint8), np.ones((8, 16, 1, 1), np.int8)
    op = Quantized(
        [QuantizedStep(bench.op("Conv"), (0, 1))],
        [scaling(0.1, 3, np.uint8), scaling(0.1, 0, np.int8)],
        scaling(0.1, 3, np.uint8),
    )
    graph, feeds = bench.single(op, [x, w], (1,))
    device.forced = "quantized_conv_bytes"
    assert run_images(device, bench, graph, feeds, NHWC).shape == (0, 8, 4, 4)


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (33, 40, 144), (70, 37, 130), (5, 8, 16)])
def test_quantized_products(
    m: int, n: int, k: int, tiling: Pipeline, device: Any, bench: Any, rng: Any, monkeypatch: Any
) -> None:
    """Sums whose quotients are halves every other time; rows that are a multiple of 16 bytes, and others."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: tiling)
    a, b = rng.integers(0, 12, (m, k)).astype(np.uint8), rng.integers(-6, 6, (k, n)).astype(np.int8)
    op = Quantized(
        [QuantizedStep(bench.op("MatMul"), (0, 1))],
        [scaling(0.125, 5, np.uint8), scaling(0.5, 0, np.int8)],
        scaling(0.125, 101, np.uint8),
    )
    graph, feeds = bench.single(op, [a, b], (1,))
    device.forced = "quantized_gemm_bytes"
    (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
    sums = (a.astype(np.int64) - 5) @ b.astype(np.int64)
    np.testing.assert_array_equal(got, np.clip(np.rint(sums / 2) + 101, 0, 255))


def test_sums_wrap(device: Any, bench: Any) -> None:
    """70000 products of 255 and 127 are beyond int32."""
    a, b = np.full((3, 70000), 255, np.uint8), np.full((70000, 8), 127, np.int8)
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b], (1,))
    device.forced = "gemm_bytes"
    (got,) = bench.run(device, graph, feeds)
    np.testing.assert_array_equal(got, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32))
    assert got.max() < 0


def test_without_constant_zero_points(device: Any, bench: Any, rng: Any) -> None:
    """Dynamic quantization: the zero point of the first factor comes with the data."""
    a, b = numbers(rng, np.uint8, 2, 7, 48), numbers(rng, np.int8, 48, 21)
    za = np.array(131, np.uint8)
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, za], (1,))
    device.forced = "gemm_bytes"
    (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(got, (a.astype(np.int64) - 131) @ b.astype(np.int64))


@pytest.mark.parametrize("zero", [100, 0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_by_weights_beyond_int8(case: Sequence[Any], zero: int, device: Any, bench: Any, rng: Any) -> None:
    """Less their zero point these are sums of two numbers of int8, or of three with 0."""
    batch, channels, maps, height, width, size, stride, dilation, pads = case
    x, w = numbers(rng, np.uint8, batch, channels, height, width), numbers(rng, np.uint8, maps, channels, size, size)
    w[0, 0, 0, 0], w[-1, -1, -1, -1] = 0, 255
    sums = sums_of(x.astype(np.int64) - 77, w.astype(np.int64) - zero, case)
    sx, sw, last = scaling(0.02, 77, np.uint8), scaling(0.01, zero, np.uint8), scaling(sums.std() / 160000, 100, np.uint8)
    conv = bench.op("Conv", strides=(stride,) * 2, pads=pads, dilations=(dilation,) * 2)
    graph, feeds = bench.single(Quantized([QuantizedStep(conv, (0, 1))], [sx, sw], last), [x, w], (1,))
    device.forced = "quantized_conv_bytes"
    expected = stored(sums * (sx.scale.astype(np.float64) * sw.scale), last)
    for layout in (NHWC,) if channels % 16 == 0 else (NHWC, PLAIN):
        np.testing.assert_array_equal(run_images(device, bench, graph, feeds, layout), expected, str(layout))
    assert len(np.unique(expected)) > 30


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@pytest.mark.parametrize(("least", "most", "parts"), [(-128, 127, 1), (-129, 0, 2), (-255, 0, 2), (0, 254, 2), (0, 255, 3)])
def test_products_by_weights_beyond_int8(
    least: int, most: int, parts: int, tiling: Pipeline, device: Any, bench: Any, rng: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: tiling)
    a, b = numbers(rng, np.uint8, 34, 145), (rng.integers(least, most + 1, (145, 40)) - least).astype(np.uint8)
    b[0, 0], b[-1, -1] = 0, most - least
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, np.array(9, np.uint8), np.array(-least, np.uint8)], (1, 2, 3))
    node = TypedNode.of(graph.nodes[0], graph)
    (kernel,) = (k for k in device.kernels(node) if k.name == "gemm_bytes")
    assert kernel.problem(node).k == parts * 80  # pairs
    device.forced = "gemm_bytes"
    (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(got, (a.astype(np.int64) - 9) @ (b.astype(np.int64) + least))


def test_instructions(device: Any) -> None:
    """Matrix units from 8.0 on, dp4a from 6.1 on, else OpenCL C."""
    caps = dataclasses.replace(device.caps, ptx=True, compute_capability=(9, 0))
    assert has_matrix_units(caps)
    assert instructions(DType.UINT8, caps)["FORMAT"] == '"u8"'
    older = dataclasses.replace(caps, compute_capability=(7, 5))
    assert not has_matrix_units(older)
    assert instructions(DType.INT8, older)["DP4A"] == '"s32"'
    assert "DP4A" not in instructions(DType.INT8, dataclasses.replace(older, compute_capability=(5, 2)))


@pytest.mark.parametrize("weights", [np.int8, np.uint8])
def test_on_matrix_units(weights: Any, bench: Any, rng: Any, infos: Sequence[DeviceInfo], monkeypatch: Any) -> None:
    """All tilings of this machine's device, with splits where it has matrix units."""
    own = OpenCLDevice(infos[0])
    device = own if own.caps.kind == "GPU" else OpenCLDevice(infos[0], caps=dataclasses.replace(own.caps, kind="GPU"))
    a, b = numbers(rng, np.int8, 77, 400), numbers(rng, weights, 400, 72)
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    (kernel,) = (k for k in device.kernels(node) if k.name == "gemm_bytes")
    tilings = list(kernel.possible(kernel.problem(node)))
    assert any(t.splits > 1 for t in tilings) == has_matrix_units(device.caps)
    for tiling in tilings[:: 3 if has_matrix_units(device.caps) else 5]:
        monkeypatch.setattr(Tuned, "tiling", lambda self, problem, chosen=tiling: chosen)
        np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], a.astype(np.int64) @ b.astype(np.int64), str(tiling))


@pytest.mark.parametrize(("k", "names"), [(400, ["scratch:node:0"]), (401, ["scratch:node:0", "scratch:node:1"])])
def test_work_buffers_are_numbered_in_order(k: int, names: Sequence[str], device: Any, bench: Any, monkeypatch: Any) -> None:
    """The memory plan counts them: one for splits, and before that one for rows that are filled up."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Pipeline(32, 32, 32, 16, 16, 3, 2))
    a, b = np.zeros((8, k), np.uint8), np.ones((k, 8), np.int8)
    graph, _ = bench.single(bench.op("MatMulInteger"), [a, b], (1,))
    (kernel,) = (x for x in device.kernels(TypedNode.of(graph.nodes[0], graph)) if x.name == "gemm_bytes")
    launches = kernel.launches(TypedNode.of(graph.nodes[0], graph))
    assert list(dict.fromkeys(a.value for x in launches for a in x.arguments if isinstance(a, Scratch))) == names


@pytest.mark.parametrize("tiling", [Pipeline(32, 32, 32, 32, 32, 2), Pipeline(16, 64, 32, 16, 64, 2)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_neighbours_that_are_stored_at_once(
    tiling: Pipeline, dtype: Any, device: Any, bench: Any, rng: Any, monkeypatch: Any
) -> None:
    """8 and 16 results an item, of sums and of a sum with an image; many quotients are halves, which go to even."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: tiling)
    x, w = numbers(rng, np.uint8, 2, 16, 5, 5) % 16, numbers(rng, np.int8, 48, 16, 1, 1) % 8
    sx, sw, middle = scaling(0.25, 3, np.uint8), scaling(0.5, 0, np.int8), scaling(2, 9, dtype)
    other, last = scaling(0.5, 7, dtype), scaling(4, -5 if dtype == np.int8 else 5, dtype)
    real = sums_of(x.astype(np.int64) - 3, w, (1, 1, (0, 0, 0, 0))) / 8
    addend = numbers(rng, dtype, *real.shape)
    conv, add = QuantizedStep(bench.op("Conv"), (0, 1)), QuantizedStep(bench.op("Add"), (-1, 2))
    device.forced = "quantized_conv_bytes"
    for op, feeds, expected in (
        (Quantized([conv], [sx, sw], middle), [x, w], stored(real, middle)),
        (Quantized([conv, middle, add], [sx, sw, other], last), [x, w, addend], None),
    ):
        graph, given = bench.single(op, feeds, (1,))
        if expected is None:
            summed = (stored(real, middle).astype(np.float32) - 9) * 2 + (addend.astype(np.float32) - 7) / 2
            expected = stored(summed, last)
        np.testing.assert_array_equal(run_images(device, bench, graph, given, NHWC), expected)
        assert len(np.unique(expected)) > 30
    assert (np.abs(real / 2 % 1) == 0.5).mean() > 0.04


LINES = [  # scale and zero point of the first quantization, of the operand, and of the result; whether steps are of 1
    ((0.01741911, 0, np.uint8), (0.02310713, 0, np.uint8), (0.02940331, 0, np.uint8), False),
    ((0.01733907, 131, np.uint8), (0.02310713, -9, np.int8), (0.02940331, 5, np.int8), False),
    ((0.5, 3, np.uint8), (0.25, 130, np.uint8), (1.0, 117, np.uint8), True),  # halves
    ((2.0, -128, np.int8), (0.5, 7, np.int8), (4.0, -5, np.int8), True),
]


def wholes(of: Scaling) -> Array:
    """All stored numbers less the zero point."""
    limits = np.iinfo(of.dtype.numpy)
    return np.arange(limits.min, limits.max + 1) - int(of.zero_point)


@pytest.mark.parametrize("order", ["add", "sub", "rsub"])
@pytest.mark.parametrize("case", LINES, ids=str)
def test_steps_are_one_line(case: Sequence[Any], order: str, device: Any, bench: Any, monkeypatch: Any) -> None:
    """All pairs of a rounded sum and a number of the operand: pixels have all sums, maps all numbers."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Pipeline(16, 64, 32, 16, 64, 2))
    lines: list[Line] = []
    monkeypatch.setattr(_byte_results, "fitted", lambda *given: lines.append(fitted(*given)) or lines[-1])
    middle, other, last = (scaling(*numbers) for numbers in case[:3])
    x, w = np.zeros((1, 16, 16, 16), np.uint8), np.zeros((256, 16, 1, 1), np.int8)
    x[0, 0], w[:, 0] = np.arange(256).reshape(16, 16), 1
    bias = np.full(256, wholes(middle)[0] * middle.scale, np.float32)
    addend = np.repeat((wholes(other) + int(other.zero_point)).astype(other.dtype.numpy), 256).reshape(1, 256, 16, 16)
    step = QuantizedStep(bench.op("Add" if order == "add" else "Sub"), (3, -1) if order == "rsub" else (-1, 3))
    scalings = [scaling(middle.scale, 0, np.uint8), scaling(1, 0, np.int8), None, other]
    op = Quantized([QuantizedStep(bench.op("Conv"), (0, 1, 2)), middle, step], scalings, last)
    graph, feeds = bench.single(op, [x, w, bias, addend], (1, 2))
    device.forced = "quantized_conv_bytes"
    rows, columns = (
        wholes(middle).astype(np.float32) * middle.scale,
        wholes(other).astype(np.float32)[:, np.newaxis] * other.scale,
    )
    real = {"add": rows + columns, "sub": rows - columns, "rsub": columns - rows}[order]
    got = run_images(device, bench, graph, feeds, NHWC)
    np.testing.assert_array_equal(got.reshape(256, 256), stored(real, last))
    assert lines
    if order == "add":
        assert all((line.span == 1) == case[3] for line in lines)


def test_a_launch_has_one_buffer_of_constants_beside_the_weights(device: Any, bench: Any, monkeypatch: Any) -> None:
    """Each buffer costs the host time."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: TILINGS[1])
    scalings = [scaling(0.02, 7, np.uint8), scaling(0.01, 0, np.int8)]
    op = Quantized([QuantizedStep(bench.op("Conv", pads=(1, 1, 1, 1)), (0, 1))], scalings, scaling(0.03, 5, np.uint8))
    graph, _ = bench.single(op, [np.zeros((1, 16, 5, 5), np.uint8), np.ones((16, 16, 3, 3), np.int8)], (1,))
    node = TypedNode.of(laid_out(graph, ["x0", "y0"]).nodes[0], laid_out(graph, ["x0", "y0"]))
    (kernel,) = (k for k in device.kernels(node) if k.name == "quantized_conv_bytes")
    (launch,) = kernel.launches(node)
    assert sum(isinstance(argument, Constant) for argument in launch.arguments) == 2


def test_steps_that_are_no_line(device: Any, bench: Any) -> None:
    """A Relu before the sum is not found to be one: sums go through local memory."""
    middle, other, last = (scaling(*numbers) for numbers in LINES[1][:3])
    steps = [QuantizedStep(bench.op("Relu"), (-1,)), QuantizedStep(bench.op("Add"), (-1, 2))]
    op = Quantized([QuantizedStep(bench.op("Conv"), (0, 1)), middle, *steps], [scaling(1, 0, np.uint8)] * 2 + [other], last)
    graph, _ = bench.single(
        op, [np.zeros((1, 16, 5, 5), np.uint8), np.ones((16, 16, 1, 1), np.int8), np.zeros((1, 16, 5, 5), np.int8)], (1,)
    )
    node = TypedNode.of(graph.nodes[0], graph)
    pairs = Pairs(
        node, op, 1, real=wholes(middle).astype(np.float32)[:, np.newaxis] * middle.scale, slopes=(float(middle.scale), 0.0)
    )
    pairs.add(*steps)
    with pytest.raises(Refused, match="line"):
        fitted(pairs, last, float(wholes(middle)[0]))


@pytest.mark.parametrize("dims", [(35, 1, 1), (1, 1, 5, 4), (2, 35, 1, 1)], ids=str)
def test_operands_that_lie_along_the_channels(dims: tuple[int, ...], device: Any, bench: Any, rng: Any) -> None:
    """A factor for each channel, as of a BatchNormalization behind a quantization, for each pixel, and for each of two images."""
    x, w = numbers(rng, np.uint8, 2, 16, 5, 4), numbers(rng, np.int8, 35, 16, 1, 1)
    sx, sw = scaling(0.02, 7, np.uint8), scaling(rng.random(35) * 0.01 + 0.001, np.zeros(35), np.int8, 0)
    real = sums_of(x.astype(np.int64) - 7, w, (1, 1, (0,) * 4)) * (sx.scale.astype(np.float64) * sw.scale).reshape(-1, 1, 1)
    middle, last = scaling(real.std() / 40, 100, np.uint8), scaling(real.std() / 50, -3, np.int8)
    factor = (rng.random(dims) * 2 - 0.5).astype(np.float32)
    steps = [QuantizedStep(bench.op("Conv"), (0, 1)), middle, QuantizedStep(bench.op("Mul"), (-1, 2))]
    graph, feeds = bench.single(Quantized(steps, [sx, sw, None], last), [x, w, factor], (1, 2))
    expected = stored((stored(real, middle).astype(np.float32) - 100) * middle.scale * factor, last)
    device.forced = "quantized_conv_bytes"
    np.testing.assert_array_equal(run_images(device, bench, graph, feeds, NHWC), expected)
    assert len(np.unique(expected)) > 30


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("adds", [False, True])
def test_norms_are_a_line_for_each_channel(
    adds: bool, relu: bool, dtype: Any, device: Any, bench: Any, rng: Any, monkeypatch: Any
) -> None:
    """A norm between two quantizations, of all rounded sums, with factors of both signs, none and one that is far too large; and
    a sum with an image behind it."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Pipeline(32, 32, 32, 32, 32, 2))
    x, w = numbers(rng, np.uint8, 2, 16, 9, 8), numbers(rng, np.int8, 64, 16, 1, 1)
    sx, sw = scaling(0.02, 7, np.uint8), scaling(rng.random(64) * 0.01 + 0.001, np.zeros(64), np.int8, 0)
    real = sums_of(x.astype(np.int64) - 7, w, (1, 1, (0,) * 4)) * (sx.scale.astype(np.float64) * sw.scale).reshape(-1, 1, 1)
    zero = 100 if dtype == np.uint8 else -3
    middle, last = scaling(real.std() / 40, zero, dtype), scaling(real.std() / 50, 17, dtype)
    other, final = scaling(real.std() / 30, 5, np.uint8), scaling(real.std() / 20, 100, dtype)
    factor, shift = ((rng.standard_normal((2, 64, 1, 1))) * [[[[1.0]]], [[[real.std()]]]]).astype(np.float32)
    factor[:3, 0, 0] = 0, 20, -1
    addend = numbers(rng, np.uint8, *real.shape)
    steps = [QuantizedStep(bench.op("Conv"), (0, 1)), middle, QuantizedStep(bench.op("Mul"), (-1, 2))]
    steps += [QuantizedStep(bench.op("Add"), (3, -1)), *[QuantizedStep(bench.op("Relu"), (-1,))] * relu]
    steps += [last, QuantizedStep(bench.op("Add"), (-1, 4))] * adds
    given = [x, w, factor, shift, *[addend] * adds]
    op = Quantized(steps, [sx, sw, None, None, *[other] * adds], final if adds else last)
    graph, feeds = bench.single(op, given, (1, 2, 3))
    normed = (stored(real, middle).astype(np.float32) - np.float32(zero)) * middle.scale * factor + shift
    expected = stored(np.maximum(normed, np.float32(0)) if relu else normed, last)
    if adds:
        added = (expected.astype(np.float32) - 17) * last.scale + (addend.astype(np.float32) - 5) * other.scale
        expected = stored(added, final)
    device.forced = "quantized_conv_bytes"
    node = laid_out(graph, [n for n in graph.types if n in ("x0", "x4", "y0")])
    (kernel,) = (k for k in device.kernels(TypedNode.of(node.nodes[0], node)) if k.name == device.forced)
    assert "CHANNEL_LINES" in kernel.launches(TypedNode.of(node.nodes[0], node))[-1].source
    np.testing.assert_array_equal(run_images(device, bench, graph, feeds, NHWC), expected)
    assert len(np.unique(expected)) > 30


@pytest.mark.parametrize("zero", [0, 101])
@pytest.mark.parametrize("above", [False, True])
def test_sums_next_to_halves(above: bool, zero: int, device: Any, bench: Any, monkeypatch: Any) -> None:
    """Every other sum is half a number and a 2^-24th of itself less or more: nearer than floats tell apart."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Pipeline(16, 64, 32, 16, 64, 2))
    x, w = np.zeros((1, 16, 32, 16), np.uint8), np.zeros((16, 16, 1, 1), np.int8)
    sums = np.arange(-256, 256).reshape(32, 16)
    x[0, 0], x[0, 1], w[:, 0], w[:, 1] = np.maximum(sums, 0), np.maximum(-sums, 0).clip(0, 255), 1, -1
    sums = sums.clip(-255, 255)
    unit = np.nextafter(np.float32(0.5), np.float32(above))
    op = Quantized(
        [QuantizedStep(bench.op("Conv"), (0, 1))],
        [scaling(unit, 0, np.uint8), scaling(1, 0, np.int8)],
        scaling(1, zero, np.uint8),
    )
    graph, feeds = bench.single(op, [x, w], (1,))
    device.forced = "quantized_conv_bytes"
    expected = np.clip(np.rint(sums * np.float64(unit)) + zero, 0, 255)
    for got in run_images(device, bench, graph, feeds, NHWC)[0]:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dims", [(2, 13, 7, 7), (3, 32, 5)], ids=str)
def test_means_of_channels(dims: Sequence[int], device: Any, bench: Any, rng: Any) -> None:
    """As the operators define it: real values are added in double."""
    x, source, result = numbers(rng, np.uint8, *dims), scaling(0.031, 120, np.uint8), scaling(0.017, 3, np.int8)
    graph, feeds = bench.single(Quantized([QuantizedStep(bench.op("GlobalAveragePool"), (0,))], [source], result), [x])
    real = ((x.astype(np.float32) - 120) * source.scale).astype(np.float64).reshape(*dims[:2], -1)
    expected = stored(real.mean(2).astype(np.float32), result)
    device.forced = "quantized_mean"
    (plain,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
    inner = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(dims)
    laid = graph.replace(types={n: t.with_layout(NHWC) for n, t in graph.types.items()})
    (last,) = bench.run(device, laid, [inner], DEBUG_BUFFERS=True)
    for got in (plain, last):
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)
    assert len(np.unique(expected)) > 10
