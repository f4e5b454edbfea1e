"""Products of quantized values that are quantized before a constant row is added: one primitive, which equal layers share."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sub import Sub

pytestmark = pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions for 8-bit products")
RNG = np.random.default_rng(43)


class Layers:
    """A model of layers as onnxruntime's static quantization writes them, and what it gives in float64."""

    def __init__(self, x, dtype):
        self.g, self.dtype = GraphBuilder(), np.dtype(dtype)
        self.value = self.g.input("x", self.dtype.name, x.shape)
        self.want = x.astype(np.float64)

    def scaled(self, kind, value, scale, zero, dtype=None):
        return self.g.node(kind(), value, self.g.constant(np.float32(scale)), self.g.constant((dtype or self.dtype).type(zero)))

    def quantize(self, value, scale, zero):
        limits = np.iinfo(self.dtype)
        self.want = np.clip(np.rint(self.want / np.float32(scale)) + zero, limits.min, limits.max)
        return self.scaled(QuantizeLinear, value, scale, zero)

    def dequantize(self, value, scale, zero):
        self.want = (self.want - zero) * np.float32(scale)
        return self.scaled(DequantizeLinear, value, scale, zero)

    def linear(self, w, row, scales, zeros, op=Add, relu=False, first=False):
        """A product, quantized, then the row on either side, perhaps a Relu, and another quantization."""
        one = np.dtype(np.int8)
        held = self.scaled(DequantizeLinear, self.g.constant(w), 0.01, 0, one)
        x = self.dequantize(self.value, 0.02, 3)
        self.want = self.want @ (w.astype(np.float64) * np.float32(0.01))
        y = self.dequantize(self.quantize(self.g.node(MatMul(), x, held), scales[0], zeros[0]), scales[0], zeros[0])
        if relu:
            y, self.want = self.g.node(Relu(), y), np.maximum(self.want, 0)
        operand, real = self.g.constant(row), row.astype(np.float64)
        if row.dtype == one:
            operand, real = self.scaled(DequantizeLinear, operand, 0.05, 7, one), (real - 7) * np.float32(0.05)
        y = self.g.node(op(), *((operand, y) if first else (y, operand)))
        self.want = self.want + (real if op is Add else -real)
        self.value = self.quantize(y, scales[1], zeros[1])


def data(dtype, shape=(2, 9, 33)):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", [(0, 0), (5, 100), (101, 7)], ids=str)
@pytest.mark.parametrize("changed", [{}, {"first": True}, {"op": Sub}, {"relu": True}], ids=str)
@pytest.mark.parametrize("row", ["stored", "real", "number"])
def test_a_row_behind_a_quantization(dtype, zeros, changed, row):
    x, w = data(dtype), data(np.int8, (33, 21))
    rows = {"stored": data(np.int8, 21), "real": RNG.uniform(-3, 3, 21).astype(np.float32), "number": np.float32(0.7)}
    layers = Layers(x, dtype)
    layers.linear(w, np.asarray(rows[row]), (0.11, 0.13), zeros, **changed)
    compiled = Core(config=False).compile_model(layers.g.model([layers.value]), "ONEDNN")
    (got,) = compiled({"x": x}).values()
    distance = np.abs(got.astype(int) - layers.want)
    assert distance.max() <= 1  # at the border between two quanta
    assert (distance == 0).mean() > 0.99
    assert [node.op for node in compiled.report().nodes] == ["dovetail::QuantizedMatMul"]


@pytest.mark.parametrize("zeros", [(0, 101), (0, 100)], ids=str)
def test_exact_halves_go_to_even_before_the_zero_point(zeros):
    x, w = data(np.uint8), data(np.int8, (33, 21))
    layers = Layers(x, np.uint8)
    layers.linear(w, (RNG.integers(-9, 9, 21) / 4).astype(np.float32), (0.25, 0.5), zeros)
    (got,) = Core(config=False).compile_model(layers.g.model([layers.value]), "ONEDNN")({"x": x}).values()
    np.testing.assert_array_equal(got, layers.want)


def test_layers_of_one_size_share_a_primitive():
    """Scales, zero points and rows differ: the primitive reads them when it runs."""
    x, layers = data(np.uint8, (2, 9, 32)), None
    layers = Layers(x, np.uint8)
    for scales, zeros in (((0.11, 0.13), (9, 11)), ((0.07, 0.17), (130, 121)), ((0.21, 0.19), (77, 128))):
        layers.linear(data(np.int8, (32, 32)), data(np.int8, 32), scales, zeros)
    compiled = Core(config=False).compile_model(layers.g.model([layers.value]), "ONEDNN")
    compiled({"x": x})
    (step,) = compiled.plan((x.shape,)).steps
    assert len(step.executable.prepared) == 3
    assert len({id(one.stage.desc) for found in step.executable.prepared.values() for one in found}) == 1
