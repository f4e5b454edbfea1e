"""8-bit results of sums that go straight out of registers, on devices of kind GPU: steps as lines, halves, operands."""

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import NHWC, TypedNode
from dovetail_gpu_opencl.kernels import _byte_results
from dovetail_gpu_opencl.kernels._byte_lines import Line, Pairs, fitted
from dovetail_gpu_opencl.kernels._pipelined import Pipeline
from dovetail_gpu_opencl.kernels._quantized_steps import Refused
from dovetail_gpu_opencl.kernels._tuned import Tuned
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

pytestmark = pytest.mark.exhaustive(0.08)  # each test compiles programs

Array = NDArray[Any]
HELPERS = runpy.run_path(str(Path(__file__).with_name("_byte_images.py")))
scaling, stored, numbers = HELPERS["scaling"], HELPERS["stored"], HELPERS["numbers"]
sums_of, laid_out, run_images = HELPERS["sums_of"], HELPERS["laid_out"], HELPERS["run_images"]


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of kind GPU that takes all problems in a tiling whose results are stored out of registers."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Pipeline(32, 32, 32, 32, 32, 2))
    found = kind_device("GPU")
    yield found
    found.forced = ""


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


@pytest.mark.parametrize("adds", [False, True])
def test_quantized_biases_are_a_line_for_each_column(adds: bool, device: Any, bench: Any, rng: Any, monkeypatch: Any) -> None:
    """As of a layer of a transformer: a stored bias behind the quantized product, and a residual sum."""
    a, b, bias = (numbers(rng, dtype, *dims) for dtype, dims in ((np.uint8, (70, 48)), (np.int8, (48, 64)), (np.uint8, (64,))))
    addend, own = numbers(rng, np.uint8, 70, 64), scaling(0.11, 90, np.uint8)
    sums = (a.astype(np.int64) - 7) @ b.astype(np.int64) * 2e-4
    middle, last, final = (scaling(sums.std() / n, 100, np.uint8) for n in (40, 50, 30))
    other = scaling(sums.std() / 20, 5, np.uint8)
    product, add = QuantizedStep(bench.op("MatMul"), (0, 1)), QuantizedStep(bench.op("Add"), (2, -1))
    steps = [product, middle, add, *[last, QuantizedStep(bench.op("Add"), (-1, 3))] * adds]
    scalings = [scaling(0.02, 7, np.uint8), scaling(0.01, 0, np.int8), own, *[other] * adds]
    graph, feeds = bench.single(Quantized(steps, scalings, final if adds else last), [a, b, bias, *[addend] * adds], (1, 2))
    sums = (a.astype(np.int64) - 7) @ b.astype(np.int64) * (np.float64(np.float32(0.02)) * np.float32(0.01))
    real = (stored(sums, middle).astype(np.float32) - 100) * middle.scale + (bias.astype(np.float32) - 90) * own.scale
    expected = stored(real, last)
    if adds:
        real = (expected.astype(np.float32) - 100) * last.scale + (addend.astype(np.float32) - 5) * other.scale
        expected = stored(real, final)
    device.forced = "quantized_gemm_bytes"
    (kernel,) = (k for k in device.kernels(TypedNode.of(graph.nodes[0], graph)) if k.name == device.forced)
    assert "CHANNEL_LINES" in kernel.launches(TypedNode.of(graph.nodes[0], graph))[-1].source
    np.testing.assert_array_equal(bench.run(device, graph, feeds, DEBUG_BUFFERS=True)[0], expected)
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
