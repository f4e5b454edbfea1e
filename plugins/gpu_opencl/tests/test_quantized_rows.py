"""Softmax, LayerNormalization and tables of 8-bit numbers, and products of computed ones, as both kinds of devices run them."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import NHWC, TypedNode
from dovetail_ops_onnx.byte_table import ByteTable
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

pytestmark = pytest.mark.exhaustive(0.15)  # each test compiles programs

Array = NDArray[Any]
HELPERS = runpy.run_path(str(Path(__file__).with_name("_byte_images.py")))
scaling, stored = HELPERS["scaling"], HELPERS["stored"]


def numbers(rng: Any, dtype: Any, *dims: int) -> Array:
    limits = np.iinfo(dtype)
    found: Array = rng.integers(limits.min, limits.max, dims, dtype, endpoint=True)
    return found


def real(x: Array, of: Scaling) -> Array:
    """In float64, of the float32 product that DequantizeLinear gives."""
    return ((x.astype(np.float32) - of.zero_point.astype(np.float32)) * of.scale).astype(np.float64)


def near(got: Array, expected: Array) -> None:
    """Equal but for numbers next to a half, few of all."""
    np.testing.assert_allclose(got.astype(int), expected.astype(int), atol=1)
    assert got.size < 2000 or (got != expected).mean() < 0.01


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_softmax(dtype: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Rows around vectors and groups, with an operand behind them, and without a rounding."""
    device = kind_device(kind)
    source, result = scaling(0.11, 3, dtype), scaling(1 / 255, 0, np.uint8)
    for dims in ((1, 1), (3, 7), (2, 5, 128), (7, 131), (2, 3, 600), (1, 4100), (0, 5), (3, 0)):
        x = numbers(rng, dtype, *dims)
        factor = (rng.random((dims[-1],)) + 0.5).astype(np.float32)
        weights = np.exp(real(x, source) - real(x, source).max(-1, keepdims=True, initial=-np.inf))
        expected = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
        softmax = QuantizedStep(bench.op("Softmax"), (0,))
        graph, feeds = bench.single(Quantized([softmax], [source], result), [x])
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        near(got, stored(expected, result))
        scaled = QuantizedStep(bench.op("Mul"), (-1, 1))
        graph, feeds = bench.single(Quantized([softmax, scaled], [source, None], None), [x, factor])
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        np.testing.assert_allclose(got, expected * factor, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_softmax_of_other_axes_is_left_to_floats(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    op = Quantized([QuantizedStep(bench.op("Softmax", axis=1), (0,))], [scaling(0.1, 3, np.uint8)], scaling(1 / 255, 0, np.uint8))
    graph, _ = bench.single(op, [numbers(rng, np.uint8, 2, 3, 4)])
    refusal = kind_device(kind).supports(TypedNode.of(graph.nodes[0], graph))
    assert not refusal


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("stored_parameters", [True, False])
def test_layer_normalization(stored_parameters: bool, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Short and long rows, with and without a bias; Scale and B may be stored numbers."""
    device = kind_device(kind)
    source, result = scaling(0.03, 120, np.uint8), scaling(0.02, -5, np.int8)
    of_scale, of_bias = scaling(0.01, 0, np.int8), scaling(0.004, 7, np.uint8)
    for dims, axis in (((3, 5), -1), ((2, 4, 384), -1), ((5, 777), 1), ((2, 3, 8, 4), 2), ((1, 2500), -1), ((0, 5), -1)):
        shape = dims[axis:]
        x, scale, bias = numbers(rng, np.uint8, *dims), numbers(rng, np.int8, *shape), numbers(rng, np.uint8, *shape)
        rows = real(x, source).reshape(-1, int(np.prod(shape)))
        centred = rows - rows.mean(1, keepdims=True) if rows.size else rows
        normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-3) if rows.size else rows
        expected = (normal * real(scale, of_scale).reshape(-1)).reshape(dims)
        norm = bench.op("LayerNormalization", axis=axis, epsilon=1e-3)
        parameters = [scale, bias] if stored_parameters else [real(scale, of_scale), real(bias, of_bias)]
        parameters = [p if stored_parameters else p.astype(np.float32) for p in parameters]
        scalings = [of_scale, of_bias] if stored_parameters else [None, None]
        op = Quantized([QuantizedStep(norm, (0, 1))], [source, scalings[0]], result)
        graph, feeds = bench.single(op, [x, parameters[0]], (1,))
        near(bench.run(device, graph, feeds, DEBUG_BUFFERS=True)[0], stored(expected, result))
        op = Quantized([QuantizedStep(norm, (0, 1, 2))], [source, *scalings], None)
        graph, feeds = bench.single(op, [x, *parameters], (1, 2))
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        np.testing.assert_allclose(got, expected + real(bias, of_bias), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_tables(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Sizes round 4 and the elements of an item, in both layouts, from int8 to uint8 and back."""
    device = kind_device(kind)
    for dims in ((1,), (7, 73), (4099,), (0, 3), (2, 5, 3, 7)):
        for source, target in ((np.uint8, np.uint8), (np.int8, np.uint8), (np.uint8, np.int8)):
            x, table = numbers(rng, source, *dims), numbers(rng, target, 256)
            graph, feeds = bench.single(ByteTable(), [x, table], (1,))
            if len(dims) == 4:
                graph = graph.replace(types={n: t.with_layout(NHWC) if t.rank == 4 else t for n, t in graph.types.items()})
            (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
            np.testing.assert_array_equal(got, table[x.view(np.uint8)])


PRODUCTS = [  # matrices, rows, columns, depth
    (1, 1, 1, 1),
    (3, 5, 7, 16),
    (2, 33, 40, 32),
    (2, 17, 24, 77),
    (6, 64, 32, 128),
    (1, 40, 129, 100),
]


FACTORS = [
    ((np.uint8, np.uint8), (3, 130)),
    ((np.int8, np.uint8), (-7, 1)),
    ((np.uint8, np.int8), (0, 0)),
    ((np.int8, np.int8), (9, 99)),
]


@pytest.mark.parametrize(("types", "zeros"), FACTORS, ids=str)
def test_products_of_computed_matrices(zeros: Any, types: Any, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Bit for bit, with any zero points: sums that are quantized at once, and with steps behind them."""
    device = kind_device("GPU")
    device.forced = "quantized_product_bytes"
    zero_a, zero_b = zeros
    for count, m, n, k in PRODUCTS:
        a, b = numbers(rng, types[0], count, m, k), numbers(rng, types[1], count, k, n)
        sa, sb = scaling(0.02, zero_a, types[0]), scaling(0.013, zero_b, types[1])
        sums = (a.astype(np.int64) - zero_a) @ (b.astype(np.int64) - zero_b)
        exact = sums * (np.float64(sa.scale) * np.float64(sb.scale))
        middle, last = scaling(max(exact.std(), 0.1) / 40, 100, np.uint8), scaling(max(exact.std(), 0.1) / 90, -3, np.int8)
        graph, feeds = bench.single(Quantized([QuantizedStep(bench.op("MatMul"), (0, 1))], [sa, sb], middle), [a, b])
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        np.testing.assert_array_equal(got, stored(exact, middle))
        mask = rng.standard_normal((count, 1, n)).astype(np.float32)
        steps = [
            QuantizedStep(bench.op("MatMul"), (0, 1)),
            middle,
            QuantizedStep(bench.op("Div"), (-1, 2)),
            QuantizedStep(bench.op("Add"), (-1, 3)),
        ]
        divisor = np.float32(1.5)
        graph, feeds = bench.single(Quantized(steps, [sa, sb, None, None], last), [a, b, divisor, mask], (2,))
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        quotient = real(stored(exact, middle), middle).astype(np.float32) / divisor
        np.testing.assert_array_equal(got, stored(quotient + mask, last))
    device.forced = ""


def test_products_of_other_sizes_have_the_same_programs(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Where a plan hurries, which takes parameters that are built."""
    device, found, kernel = kind_device("GPU"), set(), None
    op = Quantized(
        [QuantizedStep(bench.op("MatMul"), (0, 1))],
        [scaling(0.1, 3, np.uint8), scaling(0.1, 100, np.uint8)],
        scaling(2.0, 9, np.uint8),
    )
    for count, m, n, k in ((6, 64, 96, 32), (4, 50, 77, 32), (9, 128, 72, 32)):
        graph, _ = bench.single(op, [numbers(rng, np.uint8, count, m, k), numbers(rng, np.uint8, count, k, n)])
        node = TypedNode.of(graph.nodes[0], graph)
        kernel = kernel or next(one for one in device.kernels(node) if one.name == "quantized_product_bytes")
        kernel.packed.hurried = True
        found.add(tuple(launch.source for launch in kernel.launches(node)))
    assert kernel is not None
    kernel.packed.hurried = False
    assert len(found) == 1
