"""Quantized operators: exact sums rounded as QLinearConv defines it, steps as operators that round each, in both layouts."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail import Core
from dovetail.device import NHWC, PLAIN, DeviceInfo, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels import _integer_rows
from dovetail_gpu_opencl.kernels._integer_rows import pack_weights
from dovetail_gpu_opencl.source import assemble
from dovetail_gpu_opencl.wide_vectors import survives
from dovetail_ops_onnx import find
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

pytestmark = pytest.mark.exhaustive(0.1)  # each test compiles programs

Array = NDArray[Any]
PREVIOUS = -1


def scaling(scale: Any, zero: Any, dtype: Any = np.uint8, axis: int = 1) -> Scaling:
    """One scale and zero point, or as many as are given."""
    scales = np.asarray(scale, np.float32)
    return Scaling(scales, np.broadcast_to(np.asarray(zero, dtype), scales.shape), axis)


def stored(real: Array, to: Scaling) -> Array:
    """The formula of QuantizeLinear in the precision of `real`."""
    limits = np.iinfo(to.dtype.numpy)
    whole = np.rint(real / to.scale.astype(real.dtype).reshape(())) + to.zero_point.astype(real.dtype).reshape(())
    return np.clip(whole, limits.min, limits.max).astype(to.dtype.numpy)


def real(numbers: Array, of: Scaling) -> Array:
    """The formula of DequantizeLinear."""
    return (numbers.astype(np.float32) - of.zero_point.astype(np.float32)) * of.scale


def bytes_of(rng: Any, *dims: int, dtype: Any = np.uint8) -> Array:
    limits = np.iinfo(dtype)
    found: Array = rng.integers(limits.min, limits.max, dims, dtype, endpoint=True)
    return found


IMAGES = [  # channels and maps of a group, groups, height, width, kernel, stride, dilation, pad
    (3, 17, 1, 7, 9, 7, 2, 1, 3),
    (300, 16, 1, 2, 3, 1, 1, 1, 0),
    (65, 70, 1, 4, 5, 3, 1, 1, 1),
    (5, 33, 2, 9, 6, 3, 1, 2, 2),
    (1, 1, 21, 5, 6, 3, 2, 2, 1),
    (2, 9, 3, 5, 6, 3, 1, 1, 1),
]


def image_sums(bench: Any, x: Array, w: Array, case: Sequence[int]) -> Array:
    """The exact sums, from float64; `x` and `w` are whole numbers."""
    _, _, groups, _, _, kernel, stride, dilation, pad = case
    extent = dilation * (kernel - 1) + 1
    spread = np.zeros((*w.shape[:2], extent, extent))
    spread[..., ::dilation, ::dilation] = w
    found: Array = bench.convolve(x, spread, stride, (pad,) * 4, groups)
    return found


KERNELS = [
    ("CPU", "quantized_conv_rows", PLAIN),
    ("CPU", "quantized_conv_rows", NHWC),
    ("GPU", "quantized_conv_direct", PLAIN),
    ("GPU", "quantized_conv_direct", NHWC),
]


@pytest.mark.parametrize(("kind", "kernel", "layout"), KERNELS, ids=str)
@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_a_convolution_is_rounded_in_double(
    case: Sequence[int], kind: str, kernel: str, layout: Any, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Bit for bit, with a bias, a scale and zero point for each channel, and steps behind it that round each once.

    One step reads a number of each channel, which channels innermost have beside each other.
    """
    channels, maps, groups, height, width, size, stride, dilation, pad = case
    device = kind_device(kind)
    x, w = (
        bytes_of(rng, 2, groups * channels, height, width),
        bytes_of(rng, groups * maps, channels, size, size, dtype=np.int8),
    )
    sx, sw = (
        scaling(0.02, 131),
        scaling(rng.random(groups * maps) * 0.01 + 0.001, rng.integers(-20, 20, groups * maps), np.int8, 0),
    )
    unit = sx.scale.astype(np.float64) * sw.scale.astype(np.float64)
    counts = rng.integers(-9999, 9999, groups * maps)
    whole_w = w.astype(np.int64) - sw.zero_point.astype(np.int64).reshape(-1, 1, 1, 1)
    total = image_sums(bench, x.astype(np.int64) - 131, whole_w, case) + counts.reshape(-1, 1, 1)
    own = total * unit.reshape(-1, 1, 1)
    middle, other, last = scaling(own.std() / 40, 100), scaling(own.std() / 50, -3, np.int8), scaling(own.std() / 30, 7)
    addend = bytes_of(rng, *own.shape, dtype=np.int8)
    factor = (rng.random((groups * maps, 1, 1)) * 1.5 - 0.25).astype(np.float32)
    conv = bench.op("Conv", group=groups, strides=(stride,) * 2, pads=(pad,) * 4, dilations=(dilation,) * 2)
    steps = [
        QuantizedStep(conv, (0, 1, 2)),
        middle,
        QuantizedStep(bench.op("Mul"), (PREVIOUS, 4)),
        QuantizedStep(bench.op("Add"), (3, PREVIOUS)),
        QuantizedStep(bench.op("Relu"), (-1,)),
    ]
    op = Quantized(steps, [sx, sw, None, other, None], last)
    graph, feeds = bench.single(op, [x, w, (counts * unit).astype(np.float32), addend, factor], (1, 2, 4))
    types = {
        name: t.with_layout(layout) if t.dims[2:] == (height, width) or name in ("y0", "x3") else t
        for name, t in graph.types.items()
    }
    laid = [a if layout == PLAIN else np.ascontiguousarray(a.transpose(0, 2, 3, 1)).reshape(a.shape) for a in feeds]
    device.forced = kernel
    (got,) = bench.run(device, graph.replace(types=types), laid, DEBUG_BUFFERS=True)
    device.forced = ""
    got = got if layout == PLAIN else got.reshape(got.shape[0], *got.shape[2:], -1).transpose(0, 3, 1, 2)
    scaled = real(stored(own, middle), middle) * factor
    expected = stored(np.maximum(real(addend, other) + scaled, np.float32(0)), last)
    np.testing.assert_array_equal(got, expected)
    assert len(np.unique(expected)) > 30


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("relu", [False, True])
def test_halves_are_rounded_as_the_reference_does(
    relu: bool, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Sums times 0.5 are halves every other time; near them the sum in float is made once more in double."""
    device = kind_device(kind)
    a, b = rng.integers(0, 12, (9, 31)).astype(np.uint8), rng.integers(-6, 6, (31, 35)).astype(np.int8)
    steps = [QuantizedStep(bench.op("MatMul"), (0, 1)), *([QuantizedStep(bench.op("Relu"), (-1,))] if relu else [])]
    op = Quantized(steps, [scaling(0.125, 5), scaling(0.5, 0, np.int8)], scaling(0.125, 101))
    graph, feeds = bench.single(op, [a, b], (1,))
    sums = (a.astype(np.int64) - 5) @ b.astype(np.int64)
    (got,) = bench.run(device, graph, feeds)
    np.testing.assert_array_equal(got, np.clip(np.rint((np.maximum(sums, 0) if relu else sums) / 2) + 101, 0, 255))
    assert len(np.unique(got)) > 25


PRODUCTS = [(1, 1, 1), (5, 15, 17), (6, 16, 256), (7, 17, 257), (13, 70, 600), (385, 300, 70)]
"""Rows, columns and depth; of the last a work item has 16 blocks of columns, or the 3 behind them."""


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("quantizes", [True, False])
def test_products(quantizes: bool, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Gemm with a bias that is not a multiple of a unit, alpha and beta; the result float32 or quantized."""
    device = kind_device(kind)
    for m, n, k in PRODUCTS:
        a, b = bytes_of(rng, m, k, dtype=np.int8), bytes_of(rng, n, k)
        sa, sb, bias = (
            scaling(0.03, -7, np.int8),
            scaling(rng.random(n) + 0.01, 127, axis=0),
            rng.standard_normal(n).astype(np.float32),
        )
        gemm = bench.op("Gemm", transB=1, alpha=0.5, beta=2.0)
        exact = (a.astype(np.int64) + 7) @ (b.astype(np.int64).T - 127) * (np.float64(sa.scale) * sb.scale * 0.5) + 2.0 * bias
        result = scaling(max(exact.std(), 0.1) / 30, 99) if quantizes else None
        op = Quantized([QuantizedStep(gemm, (0, 1, 2))], [sa, sb, None], result)
        graph, feeds = bench.single(op, [a, b, bias], (1, 2))
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        if result is None:
            np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
        else:
            np.testing.assert_array_equal(got, stored(exact, result))


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_what_is_computed_element_by_element(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Every operation rounds once, as the graph's operators do; sizes round 8 and 512, and an operand that broadcasts."""
    device = kind_device(kind)
    left, right, result = scaling(0.07, 131), scaling(0.011, -5, np.int8), scaling(0.05, 9)
    for dims, other in (
        ((1,), (1,)),
        ((7, 73), (7, 73)),
        ((3, 345), (345,)),
        ((2, 3, 5), (3, 1)),
        ((520,), (1,)),
        ((0, 3), (0, 3)),
    ):
        x, y = bytes_of(rng, *dims), bytes_of(rng, *other, dtype=np.int8)
        for name, compute in (("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract)):
            op = Quantized([QuantizedStep(bench.op(name), (0, 1))], [left, right], result)
            graph, feeds = bench.single(op, [x, y])
            (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
            np.testing.assert_array_equal(got, stored(compute(real(x, left), real(y, right)), result), f"{name} {dims}")


@pytest.mark.parametrize(("scale", "is_real"), [(0.05, True), (0.0, True), (0.0, False)])
def test_nan_is_stored_as_zero(scale: float, is_real: bool, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """In vectors and behind them: NaN of an operand, and of 0 / 0, which stored numbers give only by a scale of 0."""
    left, right, result = scaling(0.07, 131), scaling(0.011, -5, np.int8), scaling(scale, 9)
    x = bytes_of(rng, 3, 21)
    y = rng.standard_normal((3, 21)).astype(np.float32) if is_real else bytes_of(rng, 3, 21, dtype=np.int8)
    x[1], y[1] = 131, 0 if is_real else -5
    if is_real:
        y[0, ::3] = np.nan
    op = Quantized([QuantizedStep(bench.op("Add"), (0, 1))], [left, None if is_real else right], result)
    graph, feeds = bench.single(op, [x, y])
    (got,) = bench.run(kind_device("CPU"), graph, feeds, DEBUG_BUFFERS=True)
    with np.errstate(all="ignore"):
        whole = np.rint((real(x, left) + (y if is_real else real(y, right))) / np.float32(scale)) + 9
    assert np.isnan(whole).any()
    np.testing.assert_array_equal(got, np.where(np.isnan(whole), 0, np.clip(whole, 0, 255)))


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_products_by_numbers_round_as_each_does(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """GPUs multiply by one number in place of several, but where that comes near a half; all bytes, and many halves."""
    device, x = kind_device(kind), np.arange(256, dtype=np.uint8)
    source = scaling(0.11, 131)
    for scale, middle_scale, numbers in ((0.13, 0.02, (3.7, 0.3)), (0.055, 0.05, (2.0, 2.0)), (0.11, 0.22, (0.5, 8.0))):
        divisor, factor = np.float32(numbers[0]), np.float32(numbers[1])
        middle, last = scaling(middle_scale, 5), scaling(scale, -3, np.int8)
        steps = [
            QuantizedStep(bench.op("Div"), (0, 1)),
            QuantizedStep(bench.op("Mul"), (-1, 2)),
            middle,
            QuantizedStep(bench.op("Mul"), (-1, 2)),
            QuantizedStep(bench.op("Div"), (-1, 1)),
        ]
        graph, feeds = bench.single(Quantized(steps, [source, None, None], last), [x, divisor, factor], (1, 2))
        (got,) = bench.run(device, graph, feeds)
        inner = real(stored(real(x, source) / divisor * factor, middle), middle)
        np.testing.assert_array_equal(got, stored(inner * factor / divisor, last))


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_elements_with_channels_innermost(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """A number for each channel or pixel lies along them; one for each channel of each column does not."""
    device, source, result = kind_device(kind), scaling(0.07, 131), scaling(0.05, 9)
    x = bytes_of(rng, 2, 19, 3, 5)
    for dims, accepted in (((19, 1, 1), True), ((1, 1, 3, 5), True), ((2, 19, 1, 1), True), ((19, 1, 5), False)):
        factor = rng.standard_normal(dims).astype(np.float32)
        op = Quantized([QuantizedStep(bench.op("Mul"), (0, 1))], [source, None], result)
        graph, feeds = bench.single(op, [x, factor], (1,))
        graph = graph.replace(types={n: t.with_layout(NHWC) if n in ("x0", "y0") else t for n, t in graph.types.items()})
        node = TypedNode.of(graph.nodes[0], graph)
        kernel = next(k for k in device.kernels(node) if k.name == "quantized_elementwise")
        assert any(config.fits(node) for config in kernel.configurations(node)) is accepted, dims
        if accepted:
            feeds[0] = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)
            (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
            got = got.reshape(2, 3, 5, 19).transpose(0, 3, 1, 2)
            np.testing.assert_array_equal(got, stored(real(x, source) * factor, result), str(dims))


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_maxima_along_the_channels(dtype: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """8-bit numbers whose channels are innermost, more and fewer than a vector, with padding, strides and dilation."""
    device, op = kind_device(kind), bench.op("MaxPool", kernel_shape=(3, 2), pads=(1, 0, 1, 1), strides=(2, 1), dilations=(1, 2))
    for channels in (1, 16, 35):
        x = bytes_of(rng, 2, channels, 6, 7, dtype=dtype)
        graph, feeds = bench.single(op, [x])
        laid = {name: t.with_layout(NHWC) for name, t in graph.types.items()}
        inner = [np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)]
        device.forced = "max_pool_channels"
        (got,), (plain,) = (
            bench.run(device, graph.replace(types=laid), inner, DEBUG_BUFFERS=True),
            bench.run(device, graph, feeds),
        )
        device.forced = ""
        expected = op.reference(x)[0]
        np.testing.assert_array_equal(got.reshape(2, *got.shape[2:], channels).transpose(0, 3, 1, 2), expected)
        np.testing.assert_array_equal(plain, expected)


def test_activations_between_quantized_values(kind_device: Callable[[str], Any], bench: Any) -> None:
    """All 256 numbers: the activation in float32 may end in the next quantum where it comes near a half."""
    device, x = kind_device("CPU"), np.arange(256, dtype=np.uint8)
    source, result = scaling(0.05, 128), scaling(0.02, 100)
    for name in ("Sigmoid", "Tanh", "HardSwish", "Gelu", "Elu"):
        op = bench.op(name)
        graph, feeds = bench.single(Quantized([QuantizedStep(op, (0,))], [source], result), [x])
        (got,) = bench.run(device, graph, feeds)
        expected = stored(np.asarray(op.reference(real(x, source).astype(np.float64)), np.float64), result)
        np.testing.assert_allclose(got.astype(int), expected.astype(int), atol=1, err_msg=name)
        assert (got == expected).mean() > 0.97
        assert len(np.unique(expected)) > 20


def refused(device: Any, bench: Any, op: Quantized, *inputs: Array) -> str:
    """Why the kernel for convolutions does not take it, as none does."""
    graph, _ = bench.single(op, inputs, (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    assert not device.supports(node)
    return str(next(k for k in device.kernels(node) if k.name == "quantized_conv_rows").supports(node))


def test_what_is_left_to_float32(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    device, x, w = kind_device("CPU"), bytes_of(rng, 1, 3, 4, 4), bytes_of(rng, 5, 3, 1, 1, dtype=np.int8)
    conv = QuantizedStep(bench.op("Conv"), (0, 1))
    single, several = scaling(0.1, 3), scaling([0.1, 0.2, 0.3], 3)
    assert "several scales" in refused(device, bench, Quantized([conv], [several, scaling(0.1, 0, np.int8)], single), x, w)
    assert "axis 1" in refused(device, bench, Quantized([conv], [single, scaling([0.1] * 3, 0, np.int8)], single), x, w)
    real_weights = Quantized([conv], [single, None], single)
    assert "not both quantized" in refused(device, bench, real_weights, x, w.astype(np.float32))
    whole = bytes_of(rng, 1, 3, 4, 4, 4), bytes_of(rng, 5, 3, 1, 1, 1, dtype=np.int8)
    assert "3 spatial axes" in refused(device, bench, Quantized([conv], [single, scaling(0.1, 0, np.int8)], single), *whole)
    gpu = refused(kind_device("GPU"), bench, real_weights, x, w.astype(np.float32))
    assert "made for CPUs" in gpu


def test_without_doubles_results_are_one_off_at_most(info: DeviceInfo, bench: Any, rng: Any) -> None:
    device = OpenCLDevice(info, caps=dataclasses.replace(OpenCLDevice(info).caps, kind="CPU", fp64=False))
    a, b = bytes_of(rng, 6, 99), bytes_of(rng, 99, 40, dtype=np.int8)
    op = Quantized(
        [QuantizedStep(bench.op("MatMul"), (0, 1))], [scaling(0.03, 117), scaling(0.02, 0, np.int8)], scaling(1.1, 128)
    )
    graph, feeds = bench.single(op, [a, b], (1,))
    (got,) = bench.run(device, graph, feeds)
    exact = (a.astype(np.int64) - 117) @ b.astype(np.int64) * (np.float64(np.float32(0.03)) * np.float32(0.02))
    assert np.abs(got.astype(int) - stored(exact, scaling(1.1, 128)).astype(int)).max() <= 1


@pytest.mark.parametrize("plain", [False, True])
def test_pairs_with_and_without_the_instruction(
    plain: bool, kind_device: Callable[[str], Any], bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code for CPUs with AVX2 and for others gives the same sums, at the end of the range and with weights beyond char."""
    device = kind_device("CPU")
    if plain:
        monkeypatch.setattr(
            _integer_rows, "assemble", lambda file, defines, *f: assemble(file, {**defines, "PLAIN_PAIRS": 1}, *f)
        )
    a, b = np.full((7, 301), 255, np.uint8), bytes_of(rng, 301, 37)
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, np.array(0, np.uint8), np.array(200, np.uint8)], (1, 3))
    device.forced = "gemm_integer_rows"
    (got,) = bench.run(device, graph, feeds)
    device.forced = ""
    np.testing.assert_array_equal(got, a.astype(np.int64) @ (b.astype(np.int64) - 200), strict=False)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("sums", "tiles"), [(0, False), (8, False), (16, False), (8, True)])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_fours_with_and_without_the_instruction(
    plain: bool, sums: int, tiles: bool, dtype: str, info: DeviceInfo, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code for CPUs that multiply four pairs of bytes, for so many sums at once or by tiles, for others with this order, and for
    pairs."""
    own = OpenCLDevice(info).caps
    if (sums > own.multiplies_fours or tiles > own.multiplies_tiles) and not plain:
        pytest.skip("the CPU lacks the instruction")
    if sums == 16 and not survives(own.identity):
        pytest.skip("the driver ends the process at vectors of 512 bits")
    if plain:
        monkeypatch.setattr(
            _integer_rows, "assemble", lambda file, defines, *f: assemble(file, {**defines, "PLAIN_FOURS": 1}, *f)
        )
    several_blocks = dataclasses.replace(own, kind="CPU", multiplies_fours=sums, multiplies_tiles=tiles, compute_units=1)
    device = OpenCLDevice(info, caps=several_blocks)
    lowest = np.iinfo(dtype).min

    def source(*dims: int) -> Any:
        found = rng.integers(lowest, lowest + 256, dims).astype(dtype)
        found.flat[::3], found.flat[1::3] = lowest, lowest + 255
        return found

    sizes = ((7, 1201, 37), (1, 6, 16), (13, 515, 40), (45, 128, 40), (33, 64, 16), (16, 192, 70))
    for (m, k, n), zero in zip(sizes, lowest + np.array([255, 0, 130, 7, 100, 200]), strict=True):
        a, b = source(m, k), bytes_of(rng, k, n, dtype=np.int8)
        b[::2] = -128
        graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, np.array(zero, dtype)], (1,))
        assert f"FOURS {sums}" in _source(device, graph) or not sums
        assert ("TILES 1" in _source(device, graph)) is tiles
        (got,) = bench.run(device, graph, feeds)
        np.testing.assert_array_equal(got, (a.astype(np.int64) - zero) @ b.astype(np.int64), strict=False)
    # Weights of 9 bits take two tiles, and some of more take none.
    for m, k, n, own in ((40, 300, 50, 100), (3, 64, 33, 1), (17, 70, 16, 255), (5, 64, 16, 0)):
        a, b = source(m, k), bytes_of(rng, k, n)
        b[0], b[-1] = 0, 255
        graph, feeds = bench.single(
            bench.op("MatMulInteger"), [a, b, np.array(lowest + 9, dtype), np.array(own, np.uint8)], (1, 3)
        )
        assert ("PARTS 2" in _source(device, graph)) is (tiles and own > 0)
        (got,) = bench.run(device, graph, feeds)
        np.testing.assert_array_equal(got, (a.astype(np.int64) - (lowest + 9)) @ (b.astype(np.int64) - own), strict=False)
    a, b = source(3, 5, 70), bytes_of(rng, 3, 70, 19, dtype=np.int8)
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, source(3, 5, 1)], (1,))
    (got,) = bench.run(device, graph, feeds)
    np.testing.assert_array_equal(got, (a.astype(np.int64) - feeds[-1]) @ b.astype(np.int64), strict=False)
    convolutions = ((3, 17, 1, 3, 2, 1), (21, 20, 2, 3, 1, 2), (200, 16, 1, 3, 1, 1), (64, 33, 1, 3, 1, 1))
    for channels, maps, groups, kernel, stride, pad in convolutions:
        x, w = source(2, groups * channels, 6, 7), bytes_of(rng, groups * maps, channels, kernel, kernel, dtype=np.int8)
        op = bench.op("ConvInteger", group=groups, strides=(stride,) * 2, pads=(pad,) * 4)
        graph, feeds = bench.single(op, [x, w, np.array(lowest + 77, dtype)], (1,))
        (got,) = bench.run(device, graph, feeds)
        wanted = bench.convolve(x.astype(np.int64) - (lowest + 77), w.astype(np.int64), stride, (pad,) * 4, groups)
        np.testing.assert_array_equal(got, wanted, strict=False)


def _source(device: OpenCLDevice, graph: Any) -> str:
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in device.kernels(node) if k.supports(node))
    return str(kernel.launches(node)[-1].source)


def test_a_chain_of_a_model_becomes_one_kernel(info: DeviceInfo, rng: Any) -> None:
    """The pass asks the device how much it accepts; the plan shows it."""
    g = GraphBuilder()
    x = g.input("x", "uint8", (1, 8, 5, 5))

    def number(value: float) -> str:
        return g.constant(np.array(value, np.float32))

    def op(name: str, *inputs: str, **attributes: Any) -> str:
        found = find(name, 21)
        assert found is not None
        return str(g.node(found(**attributes), *inputs))

    zero, none = g.constant(np.array(9, np.uint8)), g.constant(np.array(0, np.int8))
    source = op("DequantizeLinear", x, number(0.1), zero)
    weights = g.constant(bytes_of(rng, 8, 8, 3, 3, dtype=np.int8))
    conv = op("Conv", source, op("DequantizeLinear", weights, number(0.01), none), pads=(1, 1, 1, 1))
    inner = op("DequantizeLinear", op("QuantizeLinear", conv, number(0.2), zero), number(0.2), zero)
    y = op("QuantizeLinear", op("Relu", op("Add", inner, source)), number(0.3), zero)
    model, feeds = g.model([y]), {"x": bytes_of(rng, 1, 8, 5, 5)}
    compiled = Core().compile_model(model, info.name)
    (got,), (want,) = compiled(feeds).values(), Core().compile_model(model, "NUMPY")(feeds).values()
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
    nodes = [node for node in compiled.report().nodes if node.op.startswith("dovetail::Quantized")]
    if info.kind == "CPU":
        ((node,)) = nodes
        assert (node.op, node.kernel) == ("dovetail::QuantizedConv", "quantized_conv_rows")
        assert node.post_ops == ("requantize", "add", "relu", "quantize")


def test_weights_that_8_bits_hold_are_kept_so() -> None:
    for values, dtype in (([-128, 127], np.int8), ([-129, 0], np.int16), ([0, 128], np.int16)):
        packed = pack_weights(np.array(values, np.int16).reshape(2, 1, 1, 1), 1, 1)
        assert packed.dtype == dtype
        assert packed.ravel()[:4].tolist() == [values[0], 0, values[1], 0]
    packed = pack_weights(np.array([-128, 127], np.int16).reshape(2, 1, 1, 1), 1, 1, fours=1)
    assert packed.ravel()[:8].tolist() == [-128, 0, 0, 0, 127, 0, 0, 0]
    assert packed.ravel()[64:128].view(np.int32)[:3].tolist() == [-128, 127, 0]
    packed = pack_weights(np.array([-255, 254], np.int16).reshape(2, 1, 1, 1), 1, 1, fours=2)
    assert packed.ravel()[:8].tolist() == [-128, 0, 0, 0, 127, 0, 0, 0]
    assert packed.ravel()[64:72].tolist() == [-127, 0, 0, 0, 127, 0, 0, 0]
    assert packed.ravel()[128:192].view(np.int32)[:3].tolist() == [-255, 254, 0]
