"""Products and convolutions at sizes around the tiles, with post-op chains, against float64; each kernel forced."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from dovetail.device import Binary, Eltwise, Prelu, Sum
from dovetail.errors import InferError
from dovetail.graph.post_ops import ELTWISE_ALGORITHMS
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice

pytestmark = pytest.mark.exhaustive(0.06)  # each test compiles programs

Floats = NDArray[np.float32]
Pair = tuple[int, int]


def close(got: NDArray[Any], want: NDArray[Any], tolerance: float = 2e-6) -> None:
    """Both of float32, equal within `tolerance` of the largest finite value."""
    assert got.dtype == np.float32
    assert got.shape == want.shape
    largest = float(np.abs(want).max(initial=0, where=np.isfinite(want)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1.0, largest))


def floats(rng: np.random.Generator, *dims: int) -> Floats:
    return rng.standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 17, 5), (6, 16, 1), (7, 15, 33), (33, 31, 17), (65, 63, 16), (64, 65, 0)]
)
@pytest.mark.parametrize("constant", [True, False])
def test_products(
    m: int, n: int, k: int, constant: bool, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    device = kind_device(kind)
    a, b, c = floats(rng, m, k), floats(rng, k, n), floats(rng, m, n)
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + c, 0)
    for op, second, factor in ((bench.op("MatMul"), b, 1.0), (bench.op("Gemm", transB=True, alpha=-0.5), b.T.copy(), -0.5)):
        chain = [Sum("c", factor), Eltwise("linear", 1 / factor), Eltwise("relu")]
        device.forced = ""
        graph, feeds = bench.single(op, [a, second], (1,) if constant else (), post_ops=chain, operands={"c": c})
        for name in bench.accepted(device, graph, graph.nodes[0]):
            device.forced = name
            close(bench.run(device, graph, feeds)[0], expected)
    device.forced = ""


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(
    ("batch", "channels", "maps", "side"),
    [(1, 1, 1, 4), (2, 3, 17, 5), (1, 17, 33, 7), (3, 16, 16, 3), (2, 5, 31, 9), (1, 9, 70, 18)],
)
def test_pointwise_convolutions(
    batch: int, channels: int, maps: int, side: int, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    device = kind_device(kind)
    fewest = 24 if device.info.kind == "CPU" else 1  # a tile has fewer columns where the driver has no vectors
    x, w, b = floats(rng, batch, channels, side, side), floats(rng, maps, channels, 1, 1), floats(rng, maps)
    add, scale = floats(rng, batch, maps, side, side), floats(rng, maps, 1, 1)
    product = np.einsum("nchw,mc->nmhw", x.astype(np.float64), w[:, :, 0, 0].astype(np.float64)) + b[:, None, None]
    expected = np.maximum(product * scale + add, 0)
    chain = [Binary("mul", "scale"), Binary("add", "add"), Eltwise("relu")]
    operands = {"scale": scale, "add": add}
    device.forced = ""
    graph, feeds = bench.single(bench.op("Conv"), [x, w, b], (1, 2), post_ops=chain, operands=operands)
    names = bench.accepted(device, graph, graph.nodes[0])
    assert "gemm_rows" not in names or (kind == "CPU" and side * side >= fewest)
    assert "gemm_rows" in names or kind == "GPU" or side < 18
    for name in names:
        device.forced = name
        laid_out = assign_layouts(graph, device.configurations)  # kernels for matrix units want channels innermost
        close(bench.run(device, laid_out, feeds)[0], expected)
    device.forced = ""


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(
    ("width", "stride", "dilation", "pad"), [(1, 1, 1, 1), (8, 1, 1, 1), (17, 2, 1, 0), (31, 1, 2, 2), (19, 3, 1, 2)]
)
@pytest.mark.parametrize("depthwise", [True, False])
def test_spatial_convolutions(
    width: int,
    stride: int,
    dilation: int,
    pad: int,
    depthwise: bool,
    kind: str,
    kind_device: Callable[[str], Any],
    bench: Any,
    rng: Any,
) -> None:
    device = kind_device(kind)
    channels, maps = (7, 14) if depthwise else (7, 21)
    groups = channels if depthwise else 1
    x, w, b = floats(rng, 2, channels, 9, width), floats(rng, maps, channels // groups, 3, 3), floats(rng, maps)
    spread = {"strides": (stride,) * 2, "dilations": (dilation,) * 2, "pads": (pad, pad + dilation, pad + 1, pad + dilation)}
    op = bench.op("Conv", group=groups, **spread)
    device.forced = ""
    graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=[Eltwise("clip", 0.0, 6.0)])
    expected = np.clip(convolve(x, w, b, stride, dilation, spread["pads"], groups), 0, 6)
    for name in bench.accepted(device, graph, graph.nodes[0]):
        device.forced = name
        close(bench.run(device, graph, feeds)[0], expected)
    device.forced = ""


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float16", 2e-3), (bfloat16, 2.0**-8)])
@pytest.mark.parametrize(("width", "stride", "dilation"), [(16, 1, 1), (14, 1, 2), (17, 2, 1), (9, 1, 1), (1, 1, 1)])
def test_depthwise_windows_of_several_elements(
    width: int,
    stride: int,
    dilation: int,
    dtype: Any,
    tolerance: float,
    kind_device: Callable[[str], Any],
    bench: Any,
    rng: Any,
) -> None:
    """Four, two and one element an item: as on a device with few compute units."""
    device = copy.copy(kind_device("GPU"))
    device._bound, device.caps = {}, dataclasses.replace(device.caps, compute_units=0)
    x, w, b = (a.astype(dtype) for a in (floats(rng, 2, 3, 5, width), floats(rng, 6, 1, 3, 3), floats(rng, 6)))
    pads = (dilation,) * 4
    op = bench.op("Conv", group=3, strides=(stride,) * 2, dilations=(dilation,) * 2, pads=pads)
    graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=[Eltwise("relu")])
    expected = np.maximum(convolve(x, w, b, stride, dilation, pads, 3), 0)
    device.forced = "conv_depthwise_windows"
    (got,) = bench.run(device, graph, feeds)
    device.forced = ""
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(
    ("shape", "weights", "attributes", "wanted"),
    [
        ((1, 1, 900), (34, 1, 40), {"strides": (16,)}, "conv_rows"),
        ((2, 1, 9, 60), (17, 1, 7, 7), {"strides": (1, 3)}, "conv_rows"),
        ((1, 1, 28, 28), (8, 1, 5, 5), {}, "conv_columns"),
        ((1, 1, 19, 33), (16, 1, 3, 3), {}, "conv_depthwise"),
        ((1, 1, 19, 33), (1, 1, 7, 7), {}, "conv_depthwise"),
        ((1, 5, 19, 33), (10, 1, 3, 3), {"group": 5, "strides": (2, 2)}, "conv_depthwise"),
    ],
)
def test_one_channel_on_cpus(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    attributes: Any,
    wanted: str,
    kind_device: Callable[[str], Any],
    bench: Any,
    rng: Any,
) -> None:
    """Sound and grey images: vectors along the output channels, unless these are few or windows are close together."""
    device, op = kind_device("CPU"), bench.op("Conv", **attributes)
    device.forced = ""
    x, w = floats(rng, *shape), floats(rng, *weights)
    graph, feeds = bench.single(op, [x, w], (1,))
    assert bench.accepted(device, graph, graph.nodes[0])[0] == wanted
    close(bench.run(device, graph, feeds)[0], op.reference(x.astype(np.float64), w.astype(np.float64)))


@pytest.mark.parametrize("width", [1, 6, 7, 8, 9, 16, 25, 40])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "pads"),
    [
        ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((5, 5), (2, 2), (1, 1), (2, 2, 2, 2)),
        ((3, 5), (2, 1), (1, 2), (0, 9, 2, 4)),
        ((1, 1), (1, 3), (1, 1), (0, 0, 0, 0)),
        ((4, 2), (3, 2), (2, 1), (3, 1, 5, 0)),
        ((3, 3), (1, 1), (1, 900), (1, 900, 1, 900)),  # four rows at once
    ],
)
def test_depthwise_rows(
    width: int, kernel: Pair, strides: Pair, dilations: Pair, pads: Any, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Windows that leave the input on one side, on both, and on none; full and short blocks of rows and of columns."""
    device, op = kind_device("CPU"), bench.op("Conv", group=2, strides=strides, dilations=dilations, pads=pads)
    x, w, b = floats(rng, 2, 2, 19, width), floats(rng, 4, 1, *kernel), floats(rng, 4)
    expected = op.reference(*(a.astype(np.float64) for a in (x, w, b)))
    r = floats(rng, *expected.shape)
    check_forced(device, bench, "conv_depthwise", op, [x, w, b], r, expected)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 17, 40])
@pytest.mark.parametrize(
    ("maps", "kernel", "attributes"),
    [
        (3, (2, 2), {"strides": (2, 2)}),
        (9, (4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1), "group": 2}),
        (1, (3, 5), {"strides": (1, 3), "dilations": (2, 1), "pads": (0, 2, 1, 1), "output_padding": (0, 2)}),
        (8, (3, 3), {"dilations": (1, 5), "pads": (1, 0, 1, 0)}),
        (2, (1, 2), {"strides": (2, 4), "group": 4}),
    ],
)
def test_transposed_rows(
    width: int, maps: int, kernel: Pair, attributes: Any, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Strides above and below the kernel, columns that nothing reaches, full and short blocks of maps and of columns."""
    device, op = kind_device("CPU"), bench.op("ConvTranspose", **attributes)
    groups = attributes.get("group", 1)
    x, w, b = floats(rng, 2, 4, 3, width), floats(rng, 4, maps, *kernel), floats(rng, groups * maps)
    expected = op.reference(*(a.astype(np.float64) for a in (x, w, b)))
    r = floats(rng, *expected.shape)
    for constants in ((1, 2), ()):
        check_forced(device, bench, "conv_transpose_rows", op, [x, w, b], r, expected, constants)


def test_infinite_weights_of_transposed_rows(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Columns that a weight does not reach stay finite: it is not multiplied by the part of a vector outside the input."""
    device, op = kind_device("CPU"), bench.op("ConvTranspose", strides=(1, 2), pads=(0, 1, 0, 1))
    x, w, b = np.abs(floats(rng, 1, 2, 3, 11)) + 1, floats(rng, 2, 5, 1, 4), floats(rng, 5)
    w[0, 1, 0, 0], w[1, 3, 0, 3] = np.inf, np.inf
    expected = op.reference(*(a.astype(np.float64) for a in (x, w, b)))
    assert np.isfinite(expected).any(axis=-1).all()
    assert np.isinf(expected).any()
    for constants in ((1, 2), ()):
        device.forced = "conv_transpose_rows"
        graph, feeds = bench.single(op, [x, w, b], constants)
        found = bench.run(device, graph, feeds)[0]
        device.forced = ""
        close(found, expected)


def check_forced(
    device: Any, bench: Any, kernel: str, op: Any, inputs: Any, addend: Floats, expected: Any, constants: tuple[int, ...] = (1, 2)
) -> None:
    """Compares what a kernel computes, with an activation and an addend behind it."""
    chain = [Eltwise("hardswish", 0.25, 0.5), Binary("add", "r")]
    device.forced = kernel
    graph, feeds = bench.single(op, inputs, constants, post_ops=chain, operands={"r": addend})
    close(bench.run(device, graph, feeds)[0], expected * np.clip(0.25 * expected + 0.5, 0, 1) + addend)
    device.forced = ""


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(
    ("shape", "sizes", "mode"),
    [
        ((2, 3, 5, 7), (2, 3, 11, 40), "half_pixel"),
        ((2, 5, 7, 3), (2, 10, 9, 3), "asymmetric"),  # the channels are innermost
        ((1, 2, 3, 4, 5), (1, 2, 6, 2, 15), "half_pixel"),
        ((2, 1, 4, 6), (2, 1, 6, 5), "tf_crop_and_resize"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_nearest_elements(
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    mode: str,
    dtype: str,
    kind: str,
    kind_device: Callable[[str], Any],
    bench: Any,
    rng: Any,
) -> None:
    device, op = (
        kind_device(kind),
        bench.op("Resize", mode="nearest", coordinate_transformation_mode=mode, extrapolation_value=3.0),
    )
    x = (99 * rng.standard_normal(shape)).astype(dtype)
    # A part beyond the image: from -0.4 to 1.3 of each axis that changes.
    changes = [a != b for a, b in zip(shape, sizes, strict=True)]
    roi = np.float32([-0.4 if c else 0.0 for c in changes] + [1.3 if c else 1.0 for c in changes])
    inputs = [x, roi if mode == "tf_crop_and_resize" else np.zeros(0, np.float32), np.zeros(0, np.float32), np.int64(sizes)]
    graph, feeds = bench.single(op, inputs, (1, 2, 3))
    (got,) = bench.run(device, graph, feeds)
    np.testing.assert_array_equal(got, op.reference(*inputs))


def convolve(
    x: Floats, w: Floats, b: Floats, stride: int, dilation: int, pads: tuple[int, ...], groups: int
) -> NDArray[np.float64]:
    """Convolution as a sum over kernel elements, in float64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    rows = (wide.shape[2] - 2 * dilation - 1) // stride + 1
    columns = (wide.shape[3] - 2 * dilation - 1) // stride + 1
    result = np.zeros((x.shape[0], w.shape[0], rows, columns)) + b[:, None, None]
    share, own = w.shape[0] // groups, w.shape[1]
    for m, c, i, j in np.ndindex(w.shape[0], own, 3, 3):
        plane = wide[:, m // share * own + c, i * dilation :, j * dilation :]
        result[:, m] += float(w[m, c, i, j]) * plane[:, ::stride, ::stride][:, :rows, :columns]
    return result


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "clip": lambda s: np.clip(s, 0.25, 1.5),
    "cos": np.cos,
    "elu": lambda s: np.where(s > 0, s, 0.25 * np.expm1(s)),
    "erf": lambda s: np.vectorize(__import__("math").erf)(s),
    "exp": np.exp,
    "floor": np.floor,
    "gelu_erf": lambda s: 0.5 * s * (1 + np.vectorize(__import__("math").erf)(s / np.sqrt(2))),
    "gelu_tanh": lambda s: 0.5 * s * (1 + np.tanh(np.sqrt(2 / np.pi) * (s + 0.044715 * s**3))),
    "hardsigmoid": lambda s: np.clip(0.25 * s + 1.5, 0, 1),
    "hardswish": lambda s: s * np.clip(0.25 * s + 1.5, 0, 1),
    "linear": lambda s: 0.25 * s + 1.5,
    "log": np.log,
    "logistic": lambda s: 1 / (1 + np.exp(-s)),
    "mish": lambda s: s * np.tanh(np.logaddexp(0, s)),
    "pow": lambda s: 0.25 * np.power(s, 1.5),
    "relu": lambda s: np.where(s > 0, s, 0.25 * s),
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "soft_relu": lambda s: np.logaddexp(0, 0.25 * s) / 0.25,
    "sqrt": np.sqrt,
    "square": np.square,
    "swish": lambda s: s / (1 + np.exp(-0.25 * s)),
    "tanh": np.tanh,
}


def test_chains_that_differ_in_the_sign_of_zero(device: OpenCLDevice, bench: Any) -> None:
    """Their sources differ, though the chains are equal."""
    for limit in (0.0, -0.0):
        graph, feeds = bench.single(bench.op("Abs"), [np.float32([-1, 2])], post_ops=[Eltwise("clip", -5.0, limit)])
        assert np.signbit(bench.run(device, graph, feeds)[0]).tolist() == [bool(np.signbit(limit))] * 2


@pytest.mark.parametrize("algorithm", sorted(ELTWISE_ALGORITHMS))
def test_every_eltwise_post_op(algorithm: str, device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """In vectors and single elements, in the chain of an Add, scaled; NaN stays NaN, relu(-inf) is 0."""
    x = (3 * rng.standard_normal(101)).astype(np.float32)
    if algorithm in ("log", "sqrt", "pow"):
        x = np.abs(x) + np.float32(0.01)
    x[7], x[100] = np.nan, np.nan
    chain = [Eltwise(algorithm, 0.25, 1.5, scale=2.0), Eltwise("linear", 1.0, 0.5)]
    graph, feeds = bench.single(bench.op("Add"), [x, np.zeros(1, np.float32)], post_ops=chain)
    with np.errstate(all="ignore"):
        expected = 2 * FORMULAS[algorithm](x.astype(np.float64)) + 0.5
    np.testing.assert_allclose(bench.run(device, graph, feeds)[0], expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("exponent", [-1, 2, 3])
def test_powers_without_pow(exponent: int, device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """By products or a quotient, in vectors and single elements; NaN, infinities and signs of zeros stay."""
    x = floats(rng, 101)
    x[:5] = np.nan, np.inf, -np.inf, -0.0, 3e13
    graph, feeds = bench.single(bench.op("Pow"), [x, np.float32(exponent)], constants=(1,))
    with np.errstate(over="ignore", divide="ignore"):
        expected = (x.astype(np.float64) ** exponent).astype(np.float32)
    np.testing.assert_allclose(bench.run(device, graph, feeds)[0], expected, rtol=3e-7)


def test_relu_of_infinities(device: OpenCLDevice, bench: Any) -> None:
    x = np.array([-np.inf, np.inf, np.nan, -0.5] * 20, np.float32)
    graph, feeds = bench.single(bench.op("Add"), [x, np.zeros(1, np.float32)], post_ops=[Eltwise("relu")])
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], [0, np.inf, np.nan, 0] * 20)


@pytest.mark.parametrize("dims", [(3, 4, 16), (2, 5, 7), (1, 1, 1), (65,), (4, 0, 3)])
def test_operands_broadcast(dims: tuple[int, ...], device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """All kinds of operands: of the result's shape, one number, one axis, two axes."""
    x = floats(rng, *dims)
    shapes = {"full": dims, "one": (1,), "row": dims[-1:], "rest": (*dims[:-1], 1), "first": (dims[0], *(1,) * (len(dims) - 1))}
    operands = {name: floats(rng, *shape) + np.float32(3) for name, shape in shapes.items()}
    chain = [Binary("mul", "full"), Binary("sub", "one"), Binary("max", "row"), Binary("rdiv", "rest"), Prelu("first")]
    chain += [Sum("full", 0.5, 2), Binary("min", "rest"), Binary("rsub", "row"), Binary("div", "full")]
    graph, feeds = bench.single(bench.op("Neg"), [x], post_ops=chain, operands=operands)
    full, one, row, rest, first = (operands[name].astype(np.float64) for name in shapes)
    s = np.maximum(-x.astype(np.float64) * full - one, row)
    s = rest / s
    s = np.where(s > 0, s, first * s) + 0.5 * (full - 2)
    np.testing.assert_allclose(bench.run(device, graph, feeds)[0], (row - np.minimum(s, rest)) / full, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize(
    ("dims", "others"),
    [
        ((3, 5, 150), [(5, 150), (3, 1, 150), (1,)]),  # runs of other lengths than a work item's
        ((2, 67, 3), [(67, 1), (3,), (2, 1, 1)]),  # shorter ones
        ((2, 3, 64), [(64,), (3, 1), (2, 3, 64)]),
        ((2, 70, 5), [(70, 5), (2, 1, 5), (1, 70, 1)]),
    ],
)
def test_runs_of_operands(
    dims: tuple[int, ...], others: list[tuple[int, ...]], device: OpenCLDevice, bench: Any, rng: Any
) -> None:
    """Operands that broadcast, in kernels without vectors and with them: bools, integers, a choice among floats, sums."""
    for other in others:
        mask, masks, x, y = rng.random(dims) < 0.5, rng.random(other) < 0.5, floats(rng, *dims), floats(rng, *other)
        whole = rng.integers(-9, 9, dims)
        for name, inputs, want in (
            ("And", [mask, masks], mask & masks),
            ("Sub", [whole, masks.astype(np.int64)], whole - masks),
            ("Less", [y, x], y < x),
            ("Where", [masks, x, y], np.where(masks, x, y)),
            ("Add", [x, y], x + y),
        ):
            graph, feeds = bench.single(bench.op(name), inputs)
            np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], want, err_msg=f"{name}, {other}")
        graph, feeds = bench.single(bench.op("Add"), [x, y], post_ops=[Eltwise("linear", 2.0, 0.5)])
        close(bench.run(device, graph, feeds)[0], (2 * (x + y) + np.float32(0.5)).astype(np.float32))


@pytest.mark.parametrize("inner", [3, 5, 37, 64, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_slices(inner: int, dtype: Any, device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """Slices shorter and longer than what a work item moves, whose words are single elements and vectors."""
    data, index = rng.integers(0, 99, (3, 11, inner)).astype(dtype), rng.integers(-11, 11, (4, 5))
    graph, feeds = bench.single(bench.op("Gather", axis=1), [data, index])
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], data.take(index % 11, 1))
    index[3, 4] = 11
    with pytest.raises(InferError, match="outside axis 1 of size 11"):
        bench.run(device, graph, [data, index])
