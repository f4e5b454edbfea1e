"""Dynamically quantized convolutions with what follows them as post-ops, against sums of integers and formulas in float64."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DType
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat

IN_FLOAT32 = not library().has_int8
"""This CPU has no instructions for 8-bit products: the same numbers come out, by references."""


def op(name, **attributes):
    return find(name, 17)(**attributes)


def quantized(g, x, w, zero, scale, attributes):
    """DynamicQuantizeLinear, ConvInteger, Cast and the product with both scales, as onnxruntime's tool writes them."""
    stored, unit, shift = g.node(op("DynamicQuantizeLinear"), x, outputs=3)
    own = [g.constant(zero)] if zero is not None else []
    sums = g.node(op("ConvInteger", **attributes), stored, g.constant(w), shift, *own)
    factor = g.node(op("Mul"), unit, g.constant(np.asarray(scale, np.float32)))
    return g.node(op("Mul"), g.node(op("Cast", to=DType.FLOAT32), sums), factor)


def expected(x, w, zero, scale, attributes):
    """The same in integers and float64, by the definitions."""
    unit = np.float32(max(x.max(), 0) - min(x.min(), 0)) / np.float32(255)
    shift = np.rint(-np.float32(min(x.min(), 0)) / unit)
    q = np.clip(np.rint(x / unit) + shift, 0, 255).astype(np.float64) - shift
    sums = op("Conv", **attributes).reference(q, w.astype(np.float64) - (0 if zero is None else float(zero)))
    return sums * (float(unit) * np.float64(scale))


def products(compiled):
    return [(node.kernel, node.post_ops) for node in compiled.report().nodes if node.op == "dovetail::ConvIntegerToFloat"]


@pytest.mark.parametrize("group", [1, 2, 32])
@pytest.mark.parametrize("zero", [None, np.uint8(128), np.uint8(99)], ids=["s8", "u8", "halves"])
@pytest.mark.parametrize("channels", [False, True])
def test_scales_bias_and_activation(group, zero, channels):
    """Weights of uint8 whose differences from their zero point int8 lacks are two convolutions, the second adds the first."""
    rng, g = np.random.default_rng(21), GraphBuilder()
    x = rng.uniform(-3, 5, (2, 32, 9, 7)).astype(np.float32)
    limits = np.iinfo(np.int8 if zero is None else np.uint8)
    w = rng.integers(limits.min, limits.max, (32, 32 // group, 3, 3), limits.dtype, endpoint=True)
    scale = rng.uniform(0.005, 0.02, (32, 1, 1) if channels and zero is None else ())
    bias = rng.standard_normal((1, 32, 1, 1)).astype(np.float32)
    attributes = {"group": group, "pads": (1, 0, 1, 2), "strides": (2, 1)}
    y = quantized(g, g.input("x", "float32", x.shape), w, zero, scale, attributes)
    compiled = Core().compile_model(g.model([g.node(op("Relu"), g.node(op("Add"), y, g.constant(bias)))]), "ONEDNN")
    (got,) = compiled({"x": x}).values()
    want = np.maximum(expected(x, w, zero, scale, attributes) + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    halves = [(), ("add", "mul", "add", "relu")] if zero == 99 else [("add", "relu")]
    assert IN_FLOAT32 or [post_ops for _, post_ops in products(compiled)] == halves
    assert IN_FLOAT32 or not any("ref" in kernel for kernel, _ in products(compiled))


def test_residual_blocks_stay_in_one_layout():
    """Clip, a residual sum and a norm are post-ops, and values between convolutions stay channels-last."""
    rng, g = np.random.default_rng(22), GraphBuilder()
    x = rng.uniform(-3, 5, (1, 16, 8, 8)).astype(np.float32)
    weights = [rng.integers(-127, 127, (16, 16, 3, 3), np.int8) for _ in range(2)]
    pads = {"pads": (1, 1, 1, 1)}
    first = g.node(op("Clip"), quantized(g, g.input("x", "float32", x.shape), weights[0], None, 0.01, pads), *limits(g))
    norm = [rng.uniform(0.5, 2, 16).astype(np.float32) for _ in range(4)]
    second = g.node(op("BatchNormalization"), quantized(g, first, weights[1], None, 0.02, pads), *map(g.constant, norm))
    compiled = Core().compile_model(g.model([g.node(op("Add"), second, first)]), "ONEDNN")
    (got,) = compiled({"x": x}).values()
    between = np.clip(expected(x, weights[0], None, 0.01, pads), 0, 6).astype(np.float32)
    factor, shift, mean, variance = (array[:, None, None].astype(np.float64) for array in norm)
    sums = expected(between, weights[1], None, 0.02, pads)
    want = (sums - mean) / np.sqrt(variance + 1e-5) * factor + shift + between
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=0.02)  # a last bit may be another number of 255
    assert IN_FLOAT32 or [post_ops for _, post_ops in products(compiled)] == [("clip",), ("mul", "add", "add")]
    assert IN_FLOAT32 or compiled.report().reorders <= 3


def limits(g):
    return [g.constant(np.float32(number)) for number in (0, 6)]


@pytest.mark.parametrize("fill", [np.nan, np.inf])
def test_a_clip_behind_scales_that_are_no_numbers(fill):
    """oneDNN's clip loses NaN: the convolution runs again by its reference."""
    rng, g = np.random.default_rng(23), GraphBuilder()
    x, w = rng.uniform(-3, 5, (1, 16, 8, 8)).astype(np.float32), rng.integers(-127, 127, (16, 16, 1, 1), np.int8)
    scales = g.input("scale", "float32", ()), g.constant(np.float32(0.5))
    stored, _, shift = g.node(op("DynamicQuantizeLinear"), g.input("x", "float32", x.shape), outputs=3)
    real = g.node(ConvIntegerToFloat(), stored, g.constant(w), shift, "", *scales)
    compiled = Core().compile_model(g.model([g.node(op("Clip"), real, *limits(g))]), "ONEDNN")
    (got,) = compiled({"x": x, "scale": np.float32(fill)}).values()
    with np.errstate(all="ignore"):
        want = np.clip(expected(x, w, None, 1, {}) * fill, 0, 6)
    np.testing.assert_array_equal(got, want.astype(np.float32))
    assert IN_FLOAT32 or [post_ops for _, post_ops in products(compiled)] == [("clip",)]


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_relu_before_a_quantization_makes_no_nan(outputs):
    """A fused relu makes NaN of minus infinity, which the range shows; also where nothing reads the scale."""
    rng, g = np.random.default_rng(24), GraphBuilder()
    x, w = rng.uniform(-3, 5, (1, 16, 8, 8)).astype(np.float32), rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
    bias = np.where(np.arange(16) % 5 == 1, -np.inf, 0.5).astype(np.float32)
    real = g.node(op("Relu"), g.node(op("Conv"), g.input("x", "float32", x.shape), g.constant(w), g.constant(bias)))
    names = g.node(op("DynamicQuantizeLinear"), real, outputs=3)
    compiled = Core().compile_model(g.model(names[:outputs]), "ONEDNN")
    assert [node.post_ops for node in compiled.report().nodes if node.op == "Conv"] == [("relu",)]
    want = np.maximum(op("Conv").reference(x.astype(np.float64), w.astype(np.float64)) + bias[:, None, None], 0)
    unit = np.float32(want.max()) / 255
    for _ in range(2):
        got = [*compiled({"x": x}).values()]
        assert np.abs(got[0] - np.rint(want / unit)).max() <= 1
        np.testing.assert_allclose(got[1:], [unit, 0][: outputs - 1], rtol=1e-5)
