"""Products and convolutions of 8-bit integers, exact at sizes around the tiles and beyond float32's exact sums; each kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail import Core, Model
from dovetail.device import NHWC, Binary, DeviceInfo, DType, Eltwise, Graph, Layout, TensorType, TypedNode
from dovetail.op import GraphBuilder
from dovetail_ops_onnx import find
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat

pytestmark = pytest.mark.exhaustive(0.2)  # each test compiles programs

Sampled = Callable[[Sequence[Any], int], Sequence[Any]]

SIZES = [(1, 1, 1), (5, 15, 17), (6, 16, 256), (7, 17, 257), (13, 33, 600), (3, 40, 0)]
"""m, n and k round 6 rows, 16 columns and chunks of 256."""


def whole(a: NDArray[Any], b: NDArray[Any], za: Any, zb: Any) -> NDArray[np.int64]:
    """The exact sums."""
    found: NDArray[np.int64] = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
    return found


def each_kernel(device: Any, bench: Any, graph: Any, feeds: Any) -> dict[str, NDArray[Any]]:
    """The result of every kernel that takes the node of the graph, which writes nowhere else."""
    device.forced = ""
    found = {}
    for name in bench.accepted(device, graph, graph.nodes[0]):
        device.forced = name
        found[name] = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)[0]
    device.forced = ""
    return found


def laid_out(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """The array as it is in memory."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)).reshape(array.shape) if layout == NHWC else array


def each_layout(device: Any, bench: Any, graph: Graph, feeds: Any) -> dict[str, list[NDArray[Any]]]:
    """As `each_kernel`, with a result for each of the layouts that the kernel takes."""
    device.forced = ""
    node, found = TypedNode.of(graph.nodes[0], graph), dict[str, list[NDArray[Any]]]()
    for kernel in [one for one in device.kernels(node) if one.supports(node)]:
        device.forced = kernel.name
        for config in kernel.configurations(node):
            names = (*node.node.inputs, *node.node.outputs, *node.node.operands)
            layouts = dict(zip(names, (*config.inputs, *config.outputs, *config.operands), strict=True))
            types = {name: t.with_layout(layouts.get(name, t.layout)) for name, t in graph.types.items()}
            given = [laid_out(a, layouts[name]) for name, a in zip(graph.inputs, feeds, strict=True)]
            (got,) = bench.run(device, graph.replace(types=types), given, DEBUG_BUFFERS=True)
            n, c, *rest = got.shape
            inner = config.outputs[0] == NHWC
            found.setdefault(kernel.name, []).append(np.moveaxis(got.reshape(n, *rest, c), -1, 1) if inner else got)
    device.forced = ""
    return found


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("constant", [True, False])
def test_products(constant: bool, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any, sampled: Sampled) -> None:
    """Numbers at the ends of their range: from 258 products on, float32 cannot hold the sums."""
    device = kind_device(kind)
    for m, n, k in sampled(SIZES, 3):
        a, b = np.full((m, k), 255, np.uint8), np.full((k, n), -128, np.int8)
        if m > 1:
            a[rng.random(a.shape) < 0.1] = 254
        za, zb = np.array(0, np.uint8), np.array(127, np.int8)
        graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, za, zb], (1, 3) if constant else ())
        results = each_kernel(device, bench, graph, feeds)
        tiled = {"gemm_bytes"} if constant and k else set()
        assert set(results) == ({"gemm_integer_rows", "gemm_integer"} if kind == "CPU" else {"gemm_integer", *tiled})
        for name, got in results.items():
            np.testing.assert_array_equal(got, whole(a, b, za, zb), f"{name} {m}x{n}x{k}", strict=False)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_sums_become_floats_in_vectors(kind: str, kind_device: Callable[[str], Any], bench: Any) -> None:
    """The Cast behind a convolution, with a scale and a bias for each channel: the nearest numbers, halves to even."""
    device, scale = kind_device(kind), np.array([0.5, -3, 1], np.float32)
    counts = np.array([2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31), 7, 0], np.int32).repeat(7).reshape(2, 3, 7, 1)
    chain = (Binary("mul", "scale"), Eltwise("relu"))
    operand = {"scale": scale.reshape(3, 1, 1)}
    graph, feeds = bench.single(bench.op("Cast", to=1), [counts], post_ops=chain, operands=operand)
    (got,) = bench.run(device, graph, feeds)
    np.testing.assert_array_equal(got, np.maximum(counts.astype(np.float32) * operand["scale"], 0), strict=True)


def test_between_convolutions_dynamic_quantization_stays_channels_last(info: DeviceInfo, rng: Any) -> None:
    """Reorders only of the image and of the result."""
    g = GraphBuilder()

    def op(name: str, *inputs: str, outputs: Any = 1, **attributes: Any) -> Any:
        found = find(name, 21)
        assert found is not None
        return g.node(found(**attributes), *inputs, outputs=outputs)

    x = g.input("x", "float32", (1, 3, 9, 8))
    for layer, channels in enumerate((3, 16, 16)):
        stored, scale, zero = (f"{name}{layer}" for name in ("stored", "scale", "zero"))
        op("DynamicQuantizeLinear", x, outputs=(stored, scale, zero))
        weights = g.constant(rng.integers(0, 256, (16, channels, 3, 3)).astype(np.uint8))
        sums = op("ConvInteger", stored, weights, zero, g.constant(np.array(121, np.uint8)), pads=(1, 1, 1, 1))
        x = op("Relu", op("Mul", op("Cast", sums, to=1), scale))
    model, feeds = g.model([x]), {"x": rng.standard_normal((1, 3, 9, 8)).astype(np.float32)}
    compiled = Core().compile_model(model, info.name)
    (got,), (want,) = compiled(feeds).values(), Core().compile_model(model, "NUMPY")(feeds).values()
    np.testing.assert_array_equal(got, want, strict=True)
    if info.kind == "CPU":
        assert compiled.report().reorders == 2


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_dynamic_quantization_in_vectors(scale: float, info: DeviceInfo, rng: Any) -> None:
    """As the operator's formula, with halves, vectors and what is behind them, and several work items; NaN is stored as 0."""
    operator = find("DynamicQuantizeLinear", 21)
    assert operator is not None
    g = GraphBuilder()
    outputs = g.node(operator(), g.input("x", "float32", ("N",)), outputs=3)
    request = Core().compile_model(g.model([*outputs]), info.name).create_infer_request()
    for size in (1, 8, 21, 513, 32769):
        x = (rng.integers(-96, 415, size) * 0.5 * scale).astype(np.float32)
        low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
        unit = (high - low if high > low else np.float32(1)) / np.float32(255)
        zero = np.clip(np.rint(-low / unit), 0, 255)
        got = request.infer({"x": x})
        np.testing.assert_array_equal(got[1], unit)
        np.testing.assert_array_equal(got[2], zero)
        np.testing.assert_array_equal(got[0], np.clip(np.rint(x / unit) + zero, 0, 255))
    x[7] = np.nan
    assert not request.infer({"x": x})[0].any()


def test_batches_that_attributes_have_take_a_plan_over(info: DeviceInfo, rng: Any) -> None:
    """Windows of 3 x 3 by steps of 2: a pass gives its operator these numbers, but they are the model's."""
    g = GraphBuilder()

    def op(name: str, *inputs: str, outputs: Any = 1, **attributes: Any) -> Any:
        found = find(name, 21)
        assert found is not None
        return g.node(found(**attributes), *inputs, outputs=outputs)

    stored, scale, zero = op("DynamicQuantizeLinear", g.input("x", "float32", ("N", 16, 13, 13)), outputs=3)
    w = g.constant(rng.integers(-128, 128, (24, 16, 3, 3)).astype(np.int8))
    sums = op("Cast", op("ConvInteger", stored, w, zero, pads=(1, 1, 1, 1), strides=(2, 2)), to=DType.FLOAT32)
    model = Model(g.graph([op("Relu", op("Mul", sums, op("Mul", scale, g.constant(np.float32(0.01)))))]))
    compiled, reference = Core().compile_model(model, info.name), Core().compile_model(model, "NUMPY")
    for batch in (5, 3, 2):
        x = rng.standard_normal((batch, 16, 13, 13)).astype(np.float32)
        (got,), (want,) = compiled([x]).values(), reference([x]).values()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    report = compiled.report()
    assert {"dovetail::ConvIntegerToFloat"} <= {node.op for node in report.nodes}
    assert report.passes[-1].name == "take_over"


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_sums_become_floats_with_a_chain(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """The product of a dynamically quantized layer: times the scales, plus the bias, and an activation, as one kernel."""
    device = kind_device(kind)
    a, b = rng.integers(0, 256, (2, 5, 70)).astype(np.uint8), rng.integers(-128, 128, (70, 19)).astype(np.int8)
    za, scale = np.array(131, np.uint8), rng.random(19).astype(np.float32)
    bias = rng.standard_normal(19).astype(np.float32)
    chain = [Binary("mul", "scale"), Binary("add", "bias"), Eltwise("relu")]
    operands = {"scale": scale, "bias": bias}
    graph, feeds = bench.single(MatMulIntegerToFloat(), [a, b, za], (1,), post_ops=chain, operands=operands)
    expected = np.maximum(whole(a, b, 131, 0).astype(np.float32) * scale + bias, 0)
    for got in each_kernel(device, bench, graph, feeds).values():
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-5)  # one rounding more or less, by a fused multiplication


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_sums_become_floats_by_scales_of_both_factors(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """By one number each; the chain is left with the product of others."""
    device, b = kind_device(kind), rng.integers(-128, 128, (70, 19)).astype(np.int8)
    a = rng.integers(0, 256, (10, 70) if kind == "GPU" else (2, 5, 70)).astype(np.uint8)
    zeros, one, other = (np.array(131, np.uint8), np.array(0, np.int8)), np.array(0.013, np.float32), np.array([0.7], np.float32)
    bias = rng.standard_normal(19).astype(np.float32)
    chain = {"post_ops": [Binary("add", "bias")], "operands": {"bias": bias}}
    graph, feeds = bench.single(MatMulIntegerToFloat(), [a, b, *zeros, one, other], (1, 3, 5), **chain)
    results = each_kernel(device, bench, graph, feeds)
    assert set(results) == ({"gemm_integer_rows", "gemm_integer"} if kind == "CPU" else {"gemm_bytes", "gemm_integer"})
    expected = whole(a, b, 131, 0).astype(np.float32) * (one * other) + bias
    for name, got in results.items():
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-5, err_msg=name)
    graph, feeds = bench.single(
        MatMulIntegerToFloat(), [a, b, *zeros, one, rng.random(19).astype(np.float32)], (1, 3, 5), **chain
    )
    assert not each_kernel(device, bench, graph, feeds)


CONVOLUTIONS = [  # channels and maps of a group, groups, height, width, kernel, stride, pad
    (3, 17, 1, 7, 9, 3, 1, 1),
    (300, 16, 1, 2, 3, 1, 1, 0),
    (64, 15, 1, 4, 4, 3, 2, 1),
    (1, 1, 9, 5, 6, 3, 1, 1),
    (3, 16, 1, 9, 8, 5, 2, 2),
    (32, 24, 1, 5, 6, 3, 1, 1),
]


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_convolutions(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any, sampled: Sampled) -> None:
    device = kind_device(kind)
    for channels, maps, groups, height, width, kernel, stride, pad in sampled(CONVOLUTIONS, 2):
        x = rng.integers(200, 256, (2, groups * channels, height, width)).astype(np.uint8)
        w = rng.integers(100, 128, (groups * maps, channels, kernel, kernel)).astype(np.int8)
        zx, zw = np.array(3, np.uint8), rng.integers(-128, -100, groups * maps).astype(np.int8)
        op = bench.op("ConvInteger", group=groups, strides=(stride,) * 2, pads=(pad,) * 4)
        graph, feeds = bench.single(op, [x, w, zx, zw], (1, 3))
        shifted = w.astype(np.int64) - zw.reshape(-1, 1, 1, 1)
        expected = bench.convolve(x.astype(np.int64) - 3, shifted, stride, (pad,) * 4, groups)
        results = each_layout(device, bench, graph, feeds)
        assert set(results) == of_convolutions(kind, groups)
        for name, found in results.items():
            for got in found:
                np.testing.assert_array_equal(got, expected, name, strict=False)


def of_convolutions(kind: str, groups: int) -> set[str]:
    """The kernels that take convolutions of integers by constant weights."""
    return {"conv_integer_rows", "conv_integer"} if kind == "CPU" else {"conv_integer", *["conv_bytes"] * (groups == 1)}


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_sums_of_convolutions_become_floats(
    case: Sequence[int], kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """A layer of a dynamically quantized network: scales, a norm, a sum with an image and an activation, as one kernel.

    The zero point, which surrounds the image, comes with the data.
    """
    channels, maps, groups, height, width, kernel, stride, pad = case
    x = rng.integers(0, 256, (2, groups * channels, height, width)).astype(np.uint8)
    w = rng.integers(-128, 128, (groups * maps, channels, kernel, kernel)).astype(np.int8)
    zeros, scale, own = (np.array(101, np.uint8), np.array(0, np.int8)), np.array(0.13, np.float32), np.array(0.07, np.float32)
    factor, shift = rng.standard_normal((2, groups * maps, 1, 1)).astype(np.float32)
    sums = bench.convolve(x.astype(np.int64) - 101, w, stride, (pad,) * 4, groups)
    image = rng.standard_normal(sums.shape).astype(np.float32) * 100
    chain = [Binary("mul", "factor"), Binary("add", "shift"), Binary("add", "image"), Eltwise("relu")]
    operands = {"factor": factor, "shift": shift, "image": image}
    op = ConvIntegerToFloat(group=groups, strides=(stride,) * 2, pads=(pad,) * 4)
    graph, feeds = bench.single(op, [x, w, *zeros, scale, own], (1, 3, 5), post_ops=chain, operands=operands)
    assert graph.types["y0"] == TensorType(DType.FLOAT32, sums.shape)
    results = each_layout(kind_device(kind), bench, graph, feeds)
    assert set(results) == of_convolutions(kind, groups)
    expected = np.maximum(sums.astype(np.float32) * (scale * own) * factor + shift + image, 0)
    for name, found in results.items():
        for got in found:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-3, err_msg=name)
    others = np.full(groups * maps, 0.5, np.float32)
    graph, feeds = bench.single(op, [x, w, *zeros, scale, others], (1, 3, 5))
    if others.size > 1:
        assert not each_layout(kind_device(kind), bench, graph, feeds)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_quantized_results_meet_halves_as_the_reference_does(
    kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Sums times 0.5 are halves every other time; the definition is in float64, and so is the kernel where there are doubles."""
    device = kind_device(kind)
    assert device.caps.fp64
    a, b = rng.integers(0, 12, (9, 31)).astype(np.uint8), rng.integers(-6, 6, (31, 21)).astype(np.int8)
    scales = [np.array(value, np.float32) for value in (0.125, 0.5, 0.125)]
    zeros = [np.array(5, np.uint8), np.array(0, np.int8), np.array(128, np.uint8)]
    given = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    graph, feeds = bench.single(bench.op("QLinearMatMul"), given, (3, 5))
    expected = np.clip(np.rint(whole(a, b, 5, 0) / 2) + 128, 0, 255)
    assert len(np.unique(expected)) > 50
    for got in each_kernel(device, bench, graph, feeds).values():
        np.testing.assert_array_equal(got, expected, strict=False)
