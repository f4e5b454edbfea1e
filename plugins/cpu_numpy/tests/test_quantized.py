"""Quantized kernels: rounding block by block, and sums that float32 holds or not."""

from fractions import Fraction

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail_cpu_numpy import blocks
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.q_linear_conv import QLinearConv
from dovetail_ops_onnx.q_linear_mat_mul import QLinearMatMul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

TYPES = [np.uint8, np.int8, np.uint16, np.int16]


def extremes(rng, dtype, shape):
    """The least and the greatest number of a type, at random."""
    return rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max], shape).astype(dtype)


def rounded(real, zero):
    """saturate(round(real) + zero) of one number, by Python's fractions."""
    bounds = np.iinfo(zero.dtype)
    return max(bounds.min, min(bounds.max, round(real) + int(zero)))


def ran(bench, op, inputs, kernel, constants):
    """The result of a node, which this kernel runs."""
    graph, feeds = bench.single(op, inputs, constants)
    executable = bench.executable(graph)
    assert executable.reports[0].kernel == kernel
    return bench.run_twice(executable, feeds)[0]


@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 7), (2, 0), (40, 3, 2)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [False, True])
def test_quantize(bench, monkeypatch, shape, dtype, channels):
    """Number by number; halves, numbers out of range, and results in blocks of several axes."""
    monkeypatch.setattr(blocks, "BLOCK", 10)
    rng = np.random.default_rng(len(shape))
    axis = len(shape) - 1
    places = shape[axis:] if channels and shape else ()
    scale, zero = rng.choice(np.float32([0.5, 0.1, 3]), places), rng.integers(0, np.iinfo(dtype).max, places).astype(dtype)
    scale, zero = np.asarray(scale, np.float32), np.asarray(zero, dtype)
    limit = 4 * np.iinfo(dtype).max
    x = np.where(rng.random(shape) < 0.5, rng.integers(-limit, limit, shape) / 4, rng.standard_normal(shape)).astype(np.float32)
    found = ran(bench, QuantizeLinear(axis=axis if places else 0), [x, scale, zero], "blocks", (1, 2))
    wide = [np.broadcast_to(a, shape).reshape(-1) for a in (x / scale, zero)]
    wanted = [rounded(Fraction(float(q)), z) for q, z in zip(*wide, strict=True)]
    assert found.dtype == dtype
    assert found.reshape(-1).tolist() == wanted


@pytest.mark.parametrize("dtype", TYPES)
def test_quantize_what_is_no_number(bench, dtype):
    x, bounds = np.array([np.nan, np.inf, -np.inf, 1, -0.0, 3e38], np.float32), np.iinfo(dtype)
    found = ran(bench, QuantizeLinear(axis=0), [x, np.float32(0.25), np.asarray(3, dtype)], "blocks", (1, 2))
    assert found.tolist() == [0, bounds.max, bounds.min, 7, 3, bounds.max]


def test_quantize_halves(bench):
    """Quotients are rounded to halves, which the definition says where the scale is one, also for numbers of float32."""
    rng = np.random.default_rng(3)
    halves, scale = rng.standard_normal(5000).astype(np.float16), np.float16(0.013)
    for x, kernel in [(halves, "blocks"), (rng.standard_normal(5000).astype(np.float32), "ref")]:
        quotients = (x.astype(np.float16).astype(np.float64) / np.float64(scale)).astype(np.float16)
        wanted = [rounded(Fraction(float(q)), np.uint8(0)) for q in quotients]
        found = ran(bench, QuantizeLinear(axis=0), [x, scale, np.uint8(0)], kernel, (1, 2))
        assert found.tolist() == wanted


def test_types_that_the_kernels_refuse(bench):
    x = np.array([2**31 - 1, -(2**31), 0, 2**24 + 1], np.int32)
    for op, inputs in [
        (DequantizeLinear(axis=0), [x, np.float32(0.5)]),
        (QuantizeLinear(axis=0), [x, np.float32(3), np.uint8(0)]),
    ]:
        assert np.array_equal(ran(bench, op, inputs, "ref", (1,)), op.reference(*inputs))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zero", [None, 0, 5])
@pytest.mark.parametrize("channels", [False, True])
def test_dequantize(bench, monkeypatch, dtype, zero, channels):
    monkeypatch.setattr(blocks, "BLOCK", 10)
    rng = np.random.default_rng(0)
    x = extremes(rng, dtype, (6, 2, 3))
    places = (2,) if channels else ()
    scale = np.asarray(rng.random(places), np.float32)
    inputs = [x, scale, *([] if zero is None else [np.full(places, zero, dtype)])]
    found = ran(bench, DequantizeLinear(axis=1), inputs, "blocks", range(1, len(inputs)))
    factor = scale.reshape(-1, 1) if channels else scale
    np.testing.assert_array_equal(found, (x.astype(np.int64) - (zero or 0)).astype(np.float32) * factor)


@pytest.mark.parametrize("k", [1, 301, 701])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("zero", [0, 127, 255])
@pytest.mark.parametrize("weight", [127, -127])
def test_products_of_the_largest_numbers_are_exact(bench, k, known, zero, weight):
    """All products of one sign; the zero point of the left operand known or not."""
    a, b = np.array([[0], [255]], np.uint8).repeat(k, 1), np.full((k, 1), weight, np.int8)
    found = ran(bench, MatMulInteger(), [a, b, np.array(zero, np.uint8)], "exact float32", (1, 2) if known else (1,))
    np.testing.assert_array_equal(found, (a.astype(np.int64) - zero) @ b)


def scales(rng, columns):
    """a_scale, b_scale, y_scale."""
    return np.float32(0.02), np.asarray(rng.random(columns) * 0.01 + 0.01, np.float32), np.float32(rng.random() + 1)


@pytest.mark.parametrize("columns", [(), (6,)])
@pytest.mark.parametrize("lead", [(), (2,), (0,)])
def test_q_linear_mat_mul(bench, monkeypatch, columns, lead):
    """Against whole numbers and fractions."""
    monkeypatch.setattr(blocks, "BLOCK", 16)
    rng = np.random.default_rng(len(lead))
    a, b = extremes(rng, np.uint8, (*lead, 3, 5)), extremes(rng, np.int8, (5, 6))
    a_scale, b_scale, y_scale = scales(rng, columns)
    zero_b = np.asarray(rng.integers(-2, 3, columns), np.int8)
    zero_y = np.uint8(7)
    inputs = [a, a_scale, np.uint8(3), b, b_scale, zero_b, y_scale, zero_y]
    kernel = "exact float32" if a.size else "ref"
    found = ran(bench, QLinearMatMul(), [np.asarray(x) for x in inputs], kernel, range(1, 8))
    sums = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - zero_b)
    units = [Fraction(float(a_scale)) * Fraction(float(s)) / Fraction(float(y_scale)) for s in np.broadcast_to(b_scale, 6)]
    wanted = [rounded(int(value) * units[index % 6], zero_y) for index, value in enumerate(sums.reshape(-1))]
    assert found.reshape(-1).tolist() == wanted


@pytest.mark.parametrize(("y_scale", "wanted"), [(0, [0, 255, 0]), (np.nan, [0, 0, 0]), (np.inf, [7, 7, 7])])
def test_quotients_that_are_no_numbers(bench, y_scale, wanted):
    """Of sums 0, 2 and -2: NaN becomes 0, infinities saturate."""
    one, zero, a = np.float32(1), np.int8(0), np.array([[0], [2], [-2]], np.int8)
    with np.errstate(all="ignore"):
        inputs = [a, one, zero, np.ones((1, 1), np.int8), one, zero, np.float32(y_scale), np.uint8(7)]
        found = ran(bench, QLinearMatMul(), [np.asarray(x) for x in inputs], "exact float32", range(1, 8))
    assert found.reshape(-1).tolist() == wanted


def cancelling(rng, terms):
    """Numbers and weights whose sums grow far beyond 2^24 and come back to one digit: the numbers, the weights, the sum."""
    a, b = np.full(2 * terms + 1, 255, np.uint8), np.full(2 * terms + 1, 127, np.int8)
    b[terms:-1], a[-1], b[-1] = -127, 1, rng.integers(-100, 100)
    return a, b, int(b[-1])


@pytest.mark.parametrize("terms", [100, 701, 1501])
def test_sums_beyond_float32(bench, terms):
    """In pieces, or in float64; with scales of 1 the results are the sums."""
    a, b, wanted = cancelling(np.random.default_rng(terms), terms)
    one, zero, unsigned = np.float32(1), np.int8(0), np.uint8(0)
    product = [a[None], one, unsigned, b[:, None], one, zero, one, zero]
    assert ran(bench, QLinearMatMul(), [np.asarray(x) for x in product], "exact float32", range(1, 8)).item() == wanted
    conv = [a.reshape(1, -1, 1), one, unsigned, b.reshape(1, -1, 1), one, zero, one, zero]
    assert ran(bench, QLinearConv(), [np.asarray(x) for x in conv], "exact floats", range(1, 8)).item() == wanted


@pytest.mark.parametrize("channels", [3, 12])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("batch", [0, 2])
def test_q_linear_conv(bench, monkeypatch, channels, group, per_channel, batch):
    """Against sums of whole numbers; the padding is the zero point."""
    monkeypatch.setattr(blocks, "BLOCK", 16)
    rng = np.random.default_rng(channels)
    x, maps = extremes(rng, np.uint8, (batch, channels, 4, 5)), 2 * group
    w = np.where(rng.random((maps, channels // group, 3, 3)) < 0.02, -127, 127).astype(np.int8)
    places = (maps,) if per_channel else ()
    x_scale, w_scale, y_scale = scales(rng, places)
    w_zero, bias = np.asarray(rng.integers(-1, 2, places), np.int8), rng.integers(-(1 << 20), 1 << 20, maps).astype(np.int32)
    zero, y_zero = 9, np.int8(-4)
    attributes = {"pads": (1, 1, 1, 0), "strides": (1, 2), "group": group}
    inputs = [x, x_scale, np.uint8(zero), w, w_scale, w_zero, np.float32(y_scale * 300), y_zero, bias]
    found = ran(bench, QLinearConv(**attributes), [np.asarray(a) for a in inputs], "exact floats", range(1, 9))
    sums = exact_conv(x.astype(np.int64) - zero, w.astype(np.int64) - w_zero.reshape(-1, 1, 1, 1), attributes)
    units = Fraction(float(x_scale)) / Fraction(float(np.float32(y_scale * 300)))
    wanted = np.zeros(found.shape, np.int8)
    for (n, m, *at), value in np.ndenumerate(sums):
        own = Fraction(float(np.broadcast_to(w_scale, maps)[m]))
        wanted[(n, m, *at)] = rounded((int(value) + int(bias[m])) * units * own, y_zero)
    np.testing.assert_array_equal(found, wanted)


def exact_conv(x, w, attributes):
    """The convolution in int64, kernel element by kernel element."""
    top, left, bottom, right = attributes["pads"]
    rows, columns = attributes["strides"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height, width = (padded.shape[2] - 3) // rows + 1, (padded.shape[3] - 3) // columns + 1
    y = np.zeros((len(x), len(w), height, width), np.int64)
    maps, channels = len(w) // attributes["group"], w.shape[1]
    for m in range(len(w)):
        part = padded[:, m // maps * channels :][:, :channels]
        for i, j in np.ndindex(3, 3):
            taken = part[:, :, i : i + (height - 1) * rows + 1 : rows, j : j + (width - 1) * columns + 1 : columns]
            y[:, m] += np.tensordot(taken, w[m, :, i, j], (1, 0))
    return y


@pytest.mark.parametrize("constants", [(1, 2), (1,)], ids=["known zero point", "computed zero point"])
@pytest.mark.parametrize("channels", [4, 130])
def test_conv_integer(bench, channels, constants):
    rng = np.random.default_rng(channels)
    x, w = extremes(rng, np.int8, (1, channels, 5, 4)), np.full((3, channels, 3, 3), 255, np.uint8)
    found = ran(bench, ConvInteger(pads=(1, 1, 1, 1)), [x, w, np.array(-2, np.int8)], "exact floats", constants)
    wanted = exact_conv(x.astype(np.int64) + 2, w.astype(np.int64), {"pads": (1, 1, 1, 1), "strides": (1, 1), "group": 1})
    np.testing.assert_array_equal(found, wanted)


def test_computed_weights_are_left_to_the_reference(bench):
    x, w = np.ones((1, 2, 3, 3), np.uint8), np.ones((1, 2, 1, 1), np.uint8)
    graph = bench.single(ConvInteger(), [x, w])[0]
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == "ref"
