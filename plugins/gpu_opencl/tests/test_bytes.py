"""Products and convolutions in tiles of bytes, as devices of kind GPU choose them, against integer arithmetic."""

import dataclasses
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import NHWC, PLAIN, DeviceInfo, DType, TypedNode
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._bytes import has_matrix_units, instructions
from dovetail_gpu_opencl.kernels._pipelined import Pipeline
from dovetail_gpu_opencl.kernels._tuned import Tuned
from dovetail_gpu_opencl.launch import Constant, Scratch
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep

pytestmark = pytest.mark.exhaustive(0.08)  # each test compiles programs

Array = NDArray[Any]
HELPERS = runpy.run_path(str(Path(__file__).with_name("_byte_images.py")))
scaling, stored, numbers = HELPERS["scaling"], HELPERS["stored"], HELPERS["numbers"]
sums_of, laid_out, run_images = HELPERS["sums_of"], HELPERS["laid_out"], HELPERS["run_images"]
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
