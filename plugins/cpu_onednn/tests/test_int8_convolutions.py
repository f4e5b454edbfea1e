"""8-bit convolutions of one channel and over long sequences: exact sums, by fast implementations."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels._conv import LONG
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.relu import Relu

pytestmark = pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions for 8-bit products")
RNG = np.random.default_rng(41)
CASES = {
    "from_one": ((2, 1, 12, 9), (7, 1, 3, 3)),
    "to_one": ((1, 8, 12, 9), (1, 8, 3, 3)),
    "one_to_one": ((1, 1, 12, 9), (1, 1, 5, 3)),
    "sound": ((1, 1, 300), (24, 1, 10)),
    "sequence": ((2, 9, LONG + 7), (12, 9, 7)),
    "dilated": ((1, 16, LONG + 60), (3, 16, 7)),
}


def integers(shape, dtype):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def operator(kind, shape, dilated):
    rank, dilation = len(shape) - 2, 9 if dilated else 1
    return kind(pads=(dilation,) * 2 * rank, dilations=(dilation,) * rank)


def implementations(compiled, shapes, operators):
    """oneDNN's names of what runs the only node of these operators."""
    (step,) = compiled.plan(shapes).steps
    (name,) = (p.node.node.name for p in step.executable.placements if type(p.node.op).__name__ in operators)
    return [one.stage.desc.implementation for one in step.executable.prepared[name]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", CASES)
def test_integer_convolution(name, dtype):
    shape, kernel = CASES[name]
    x, w, op = integers(shape, dtype), integers(kernel, np.int8), operator(ConvInteger, shape, name == "dilated")
    g = GraphBuilder()
    y = g.node(op, g.input("x", np.dtype(dtype).name, shape), g.constant(w), g.input("z", np.dtype(dtype).name, ()))
    compiled = Core(config=False).compile_model(g.model([y]), "ONEDNN")
    for zero in integers(3, dtype):
        (got,) = compiled({"x": x, "z": zero}).values()
        np.testing.assert_array_equal(got, op.reference(x, w, zero))
    found = implementations(compiled, (shape, ()), ["ConvInteger"])
    assert not any(one.startswith("ref") or "gemm" in one for one in found)


@pytest.mark.parametrize("name", CASES)
def test_quantized_convolution(name):
    shape, kernel = CASES[name]
    x, w, op = integers(shape, np.uint8), integers(kernel, np.int8), operator(Conv, shape, name == "dilated")
    scale, zero = np.float32(0.5), np.uint8(101)
    g = GraphBuilder()
    data = g.node(DequantizeLinear(), g.input("x", "uint8", shape), g.constant(scale), g.constant(zero))
    weights = g.node(DequantizeLinear(), g.constant(w), g.constant(np.float32(1)), g.constant(np.int8(0)))
    y = g.node(QuantizeLinear(), g.node(op, data, weights), g.constant(np.float32(256)), g.constant(zero))
    compiled = Core(config=False).compile_model(g.model([y]), "ONEDNN")
    real = op.reference((x.astype(np.float64) - 101) / 2, w.astype(np.float64)) / 256
    np.testing.assert_array_equal(compiled({"x": x})[y], np.clip(np.rint(real) + 101, 0, 255))
    found = implementations(compiled, (shape,), ["QuantizedConv", "Quantized"])
    assert not any(one.startswith("ref") or "gemm" in one for one in found)


@pytest.mark.parametrize("size", [1, 3])
def test_layers_with_other_scales_share_a_primitive(size):
    """conv -> Q -> DQ -> Relu -> Q, in the same sizes and with numbers of their own."""
    g, shape, outputs = GraphBuilder(), (1, 16, 6, 5), []

    def quantized(operator, value, scale, zero):
        return g.node(operator(), value, g.constant(np.float32(scale)), g.constant(zero))

    x = quantized(DequantizeLinear, g.input("x", "uint8", shape), 0.031, np.uint8(117))
    for scale, zero in ((0.083, 101), (0.069, 90), (0.071, 129)):
        weights = quantized(DequantizeLinear, g.constant(integers((16, 16, size, size), np.int8)), scale / 10, np.int8(0))
        found = quantized(QuantizeLinear, g.node(Conv(), x, weights), scale, np.uint8(zero))
        found = g.node(Relu(), quantized(DequantizeLinear, found, scale, np.uint8(zero)))
        outputs.append(quantized(QuantizeLinear, found, scale * 1.3, np.uint8(0)))
    compiled = Core(config=False).compile_model(g.model(outputs), "ONEDNN")
    compiled({"x": integers(shape, np.uint8)})
    (step,) = compiled.plan((shape,)).steps
    convolutions = [p.node.node.name for p in step.executable.placements if type(p.node.op).__name__ == "Quantized"]
    assert len(convolutions) == 3
    assert len({id(one.stage.desc) for name in convolutions for one in step.executable.prepared[name]}) == 1
