"""Products and convolutions of integers, and dynamic quantization, against sums of integers and ONNX's formulas."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DType
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels.conv_integer import IntegerConvolution
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find

IN_FLOAT32 = not library().has_int8
"""This CPU has no instructions for 8-bit products: the same numbers come out, by references."""


def op(name, **attributes):
    return find(name, 17)(**attributes)


@pytest.mark.parametrize("shape", [(1, 33), (2, 5, 33)])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize("scales", [1, 21])
@pytest.mark.parametrize("own", [0, 11])
def test_dynamic_quantization(shape, weights, scales, own):
    """DynamicQuantizeLinear, MatMulInteger, Cast, scales, bias, Relu: two primitives, against integers and float64."""
    rng = np.random.default_rng(15)
    x = rng.uniform(-3, 5, shape).astype(np.float32)
    limits = np.iinfo(weights)
    w = rng.integers(limits.min, limits.max, (33, 21), weights, endpoint=True)
    zero, bias = weights((128 if weights is np.uint8 else 0) + own), rng.standard_normal(21).astype(np.float32)
    scale = rng.uniform(0.005, 0.02, scales).astype(np.float32)
    g = GraphBuilder()
    stored_x, x_scale, x_zero = g.node(op("DynamicQuantizeLinear"), g.input("x", "float32", shape), outputs=["q", "s", "z"])
    sums = g.node(op("MatMulInteger"), stored_x, g.constant(w), x_zero, g.constant(zero))
    real = g.node(op("Cast", to=DType.FLOAT32), sums)
    scaled = g.node(op("Mul"), real, g.node(op("Mul"), x_scale, g.constant(scale)))
    y = g.node(op("Relu"), g.node(op("Add"), g.constant(bias), scaled))
    compiled = Core().compile_model(g.model([y, stored_x]), "ONEDNN")
    got, q = compiled({"x": x}).values()
    unit = np.float32(x.max() - x.min()) / np.float32(255)
    shift = np.rint(-x.min() / unit)
    np.testing.assert_array_equal(q, np.clip(np.rint(x / unit) + shift, 0, 255).astype(np.uint8))
    whole = (q.astype(np.int64) - int(shift)) @ (w.astype(np.int64) - int(zero))
    want = np.maximum(whole * (float(unit) * scale.astype(np.float64)) + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    products = [n for n in compiled.report().nodes if n.op == "dovetail::MatMulIntegerToFloat"]
    assert IN_FLOAT32 or [n.post_ops for n in products] == [("add", "relu")]
    assert IN_FLOAT32 or "vnni" in products[0].kernel
    assert IN_FLOAT32 or len(compiled.report().nodes) == 2


def test_a_large_quantized_output_that_a_product_reads_too():
    """Primitives write large outputs into new arrays, unless kernels in Python use their memory."""
    rng, g = np.random.default_rng(20), GraphBuilder()
    shape, w = (4100, 33), rng.integers(-127, 127, (33, 5), np.int8)
    q, _, zero = g.node(op("DynamicQuantizeLinear"), g.input("x", "float32", shape), outputs=["q", "s", "z"])
    request = (
        Core()
        .compile_model(g.model([g.node(op("MatMulInteger"), q, g.constant(w), zero), q, zero]), "ONEDNN")
        .create_infer_request()
    )
    inputs = [rng.uniform(-3, high, shape).astype(np.float32) for high in (5, 9)]
    for x, (sums, stored, shift) in [(x, [*request.infer({"x": x}).values()]) for x in inputs]:
        want = op("DynamicQuantizeLinear").reference(x)
        np.testing.assert_array_equal(stored, want[0])
        np.testing.assert_array_equal(sums, (want[0].astype(np.int64) - int(shift)) @ w.astype(np.int64))


def test_infinities_behind_an_integer_product():
    """A fused relu makes NaN of minus infinity: the product runs again by its reference."""
    rng, g = np.random.default_rng(18), GraphBuilder()
    w, bias = rng.integers(-127, 127, (33, 5), np.int8), np.array([-np.inf, np.inf, np.nan, 0, 1], np.float32)
    q, scale, zero = g.node(op("DynamicQuantizeLinear"), g.input("x", "float32", (4, 33)), outputs=["q", "s", "z"])
    real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("MatMulInteger"), q, g.constant(w), zero))
    y = g.node(op("Relu"), g.node(op("Add"), g.node(op("Mul"), real, scale), g.constant(bias)))
    x = rng.uniform(-3, 5, (4, 33)).astype(np.float32)
    got, q, scale, zero = Core().compile_model(g.model([y, q, scale, zero]), "ONEDNN")({"x": x}).values()
    want = (q.astype(np.float64) - zero) @ w.astype(np.float64) * scale + bias
    np.testing.assert_allclose(got, np.maximum(want, 0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("fill", [0.0, np.nan, np.inf, 1e-44])
def test_dynamic_quantization_of_what_has_no_range(fill):
    node = op("DynamicQuantizeLinear")
    g = GraphBuilder()
    outputs = g.node(node, g.input("x", "float32", (3, 4)), outputs=["q", "s", "z"])
    x = np.full((3, 4), fill, np.float32)
    found = Core().compile_model(g.model(outputs), "ONEDNN")({"x": x})
    for got, want in zip(found.values(), node.reference(x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "data", [[1.0, 2.0, 3.0], [-3.0, -2.0], [-1.0, 254.0], [-127.5, 127.5], [-1e-39, 3e38], [-2.0, np.nan, 1.0], [-np.inf, 1.0]]
)
def test_the_range_of_dynamic_quantization(data):
    """Both ends include 0, the zero point is rounded half to even: the same numbers as the formula in float32 gives."""
    x, zero, steps = np.array(data, np.float32), np.float32(0), np.float32(255)
    g = GraphBuilder()
    outputs = g.node(op("DynamicQuantizeLinear"), g.input("x", "float32", x.shape), outputs=["q", "s", "z"])
    q, scale, point = Core().compile_model(g.model(outputs), "ONEDNN")({"x": x}).values()
    with np.errstate(all="ignore"):
        want = (np.maximum(x.max(), zero) - np.minimum(x.min(), zero)) / steps
        np.testing.assert_array_equal(scale, want)
        if np.isfinite(want):
            shift = np.rint(-np.minimum(x.min(), zero) / want)
            assert point == shift
            np.testing.assert_array_equal(q, np.clip(np.rint(x / want) + shift, 0, 255))


def test_products_that_differ_in_their_zero_points():
    """Plans are kept for nodes that are alike, which are those of another content too."""
    rng, g = np.random.default_rng(19), GraphBuilder()
    a, b, x = rng.integers(0, 256, (7, 31), np.uint8), rng.integers(-128, 128, (31, 9), np.int8), g.input("a", "uint8", (7, 31))
    zeros = (0, 3, 255)
    outputs = [g.node(op("MatMulInteger"), x, g.constant(b), g.constant(np.uint8(zero))) for zero in zeros]
    found = Core().compile_model(g.model(outputs), "ONEDNN")({"a": a}).values()
    for got, zero in zip(found, zeros, strict=True):
        np.testing.assert_array_equal(got, (a.astype(np.int64) - zero) @ b.astype(np.int64))


def test_the_sums_of_an_integer_product():
    rng = np.random.default_rng(16)
    a, b = rng.integers(-128, 128, (7, 300), np.int8), rng.integers(-128, 128, (300, 9), np.int8)
    g = GraphBuilder()
    y = g.node(op("MatMulInteger"), g.input("a", "int8", a.shape), g.constant(b), g.input("z", "int8", ()))
    compiled = Core().compile_model(g.model([y]), "ONEDNN")
    for zero in (-128, 0, 127):
        (got,) = compiled({"a": a, "z": np.int8(zero)}).values()
        np.testing.assert_array_equal(got, (a.astype(np.int64) - zero) @ b.astype(np.int64))
    assert IN_FLOAT32 or "vnni" in compiled.report().nodes[0].kernel


@pytest.mark.parametrize("own", [np.uint8(117), np.full((4,), 117, np.uint8), np.uint8(0), np.int8(-3)], ids=repr)
@pytest.mark.parametrize("rows", [1, 7])
def test_a_matrix_with_a_zero_point(own, rows):
    rng, limits = np.random.default_rng(19), np.iinfo(own.dtype)
    a, b = rng.integers(0, 256, (rows, 250), np.uint8), rng.integers(limits.min, limits.max, (250, 4), own.dtype, endpoint=True)
    a[0], b[:, 1] = 255, limits.max
    g = GraphBuilder()
    y = g.node(op("MatMulInteger"), g.input("a", "uint8", a.shape), g.constant(b), g.input("z", "uint8", ()), g.constant(own))
    compiled = Core().compile_model(g.model([y]), "ONEDNN")
    for zero in (0, 255):
        (got,) = compiled({"a": a, "z": np.uint8(zero)}).values()
        np.testing.assert_array_equal(got, (a.astype(np.int64) - zero) @ (b.astype(np.int64) - own.astype(np.int64)))
    assert IN_FLOAT32 or "vnni" in compiled.report().nodes[0].kernel


def test_a_matrix_of_uint8_without_a_zero_point():
    rng = np.random.default_rng(20)
    a, b = (rng.integers(0, 256, dims, np.uint8) for dims in ((7, 250), (250, 4)))
    g = GraphBuilder()
    y = g.node(op("MatMulInteger"), g.input("a", "uint8", a.shape), g.constant(b))
    (got,) = Core().compile_model(g.model([y]), "ONEDNN")({"a": a}).values()
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("group", [1, 2, 32])
def test_the_sums_of_an_integer_convolution(group):
    rng = np.random.default_rng(17)
    x = rng.integers(0, 256, (2, 32, 7, 5), np.uint8)
    w = rng.integers(-128, 128, (32, 32 // group, 3, 3), np.int8)
    g = GraphBuilder()
    attributes = {"group": group, "pads": (1, 0, 1, 2), "strides": (2, 1)}
    y = g.node(op("ConvInteger", **attributes), g.input("x", "uint8", x.shape), g.constant(w), g.input("z", "uint8", ()))
    compiled = Core().compile_model(g.model([y]), "ONEDNN")
    for zero in (0, 9, 255):
        (got,) = compiled({"x": x, "z": np.uint8(zero)}).values()
        want = op("Conv", **attributes).reference(x.astype(np.float64) - zero, w.astype(np.float64))
        np.testing.assert_array_equal(got, want)
    assert IN_FLOAT32 or [n.kernel for n in compiled.report().nodes if n.op == "ConvInteger"] != ["ref"]


@pytest.mark.parametrize(("shape", "maps"), [((2, 1, 9, 7), 8), ((3, 1, 40), 5), ((2, 24, 1, 1), 16)], ids=str)
def test_integer_convolutions_of_one_channel_or_element(monkeypatch, shape, maps):
    """As those of quantized values, from plain data without oneDNN's reference."""
    plans = []
    final = IntegerConvolution.final
    monkeypatch.setattr(IntegerConvolution, "final", lambda *given: plans.append(final(*given)) or plans[-1])
    rng, g = np.random.default_rng(18), GraphBuilder()
    x = rng.integers(0, 256, shape, np.uint8)
    w = rng.integers(-128, 128, (maps, shape[1], *(min(3, size) for size in shape[2:])), np.int8)
    y = g.node(op("ConvInteger"), g.input("x", "uint8", shape), g.constant(w), g.input("z", "uint8", ()))
    compiled = Core().compile_model(g.model([y]), "ONEDNN")
    (got,) = compiled({"x": x, "z": np.uint8(9)}).values()
    np.testing.assert_array_equal(got, op("Conv").reference(x.astype(np.float64) - 9, w.astype(np.float64)))
    assert IN_FLOAT32 or (plans and not any(plan.is_slow for plan in plans))


def test_further_rows_take_over_products_with_scales():
    """Two layers that differ in their weights: a plan for more rows has the nodes that one from the beginning has."""
    rng, g = np.random.default_rng(20), GraphBuilder()
    weights = [rng.integers(-127, 127, (33, 33), np.int8) for _ in range(2)]
    scales = [np.float32(0.011), rng.uniform(0.005, 0.02, 33).astype(np.float32)]
    y = g.input("x", "float32", ("rows", 33))
    for w, scale in zip(weights, scales, strict=True):
        stored, unit, zero = g.node(op("DynamicQuantizeLinear"), y, outputs=3)
        real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("MatMulInteger"), stored, g.constant(w), zero))
        y = g.node(op("Mul"), real, g.node(op("Mul"), unit, g.constant(scale)))
    compiled = Core().compile_model(g.model([y]), "ONEDNN")
    for rows in (5, 7, 9):
        data = rng.uniform(-3, 5, (rows, 33)).astype(np.float32)
        (got,) = compiled({"x": data}).values()
        fresh = Core().compile_model(g.model([y]), "ONEDNN")
        np.testing.assert_array_equal(got, *fresh({"x": data}).values())
        for w, scale in zip(weights, scales, strict=True):
            unit = np.float32(max(data.max(), 0) - min(data.min(), 0)) / np.float32(255)
            shift = np.rint(-min(data.min(), np.float32(0)) / unit)
            q = np.clip(np.rint(data / unit) + shift, 0, 255)
            data = ((q - shift) @ w.astype(np.float64)).astype(np.float32) * (unit * scale)
        np.testing.assert_allclose(got, data, rtol=1e-5, atol=1e-4)
        report = compiled.report({"x": (rows, 33)})
        assert report.nodes == fresh.report({"x": (rows, 33)}).nodes
        assert rows == 5 or report.passes[-1].name == "take_over"
