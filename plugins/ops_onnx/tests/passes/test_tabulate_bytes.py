"""Activations between DequantizeLinear and QuantizeLinear become tables, with the same bits for every byte."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.byte_table import ByteTable
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.split import Split

WITHOUT = {"PASSES": "-tabulate_bytes"}
BYTES = np.arange(256, dtype=np.uint8).reshape(2, 8, 4, 4)


class Builder(GraphBuilder):
    """Quantizes to one type, with other numbers each time."""

    def __init__(self, dtype: str = "uint8") -> None:
        super().__init__()
        self.dtype, self.count = dtype, 0

    def parameters(self) -> tuple[str, str]:
        self.count += 1
        zero = np.array(self.count * 9 if self.dtype == "uint8" else -self.count * 5, self.dtype)
        return self.constant(np.float32(0.01 + 0.013 * self.count)), self.constant(zero)

    def dequantized(self, x: str, *parameters: str) -> str:
        return self.node(DequantizeLinear(), x, *(parameters or self.parameters()))

    def rounded(self, x: str) -> str:
        """Quantized and dequantized again."""
        parameters = self.parameters()
        return self.dequantized(self.node(QuantizeLinear(), x, *parameters), *parameters)

    def quantized(self, x: str) -> str:
        return self.node(QuantizeLinear(), x, *self.parameters())


def silu(g: Builder, x: str) -> str:
    return g.node(Mul(), x, g.rounded(g.node(Sigmoid(), x)))


def hard_swish(g: Builder, x: str) -> str:
    return g.node(Mul(), g.rounded(g.node(HardSigmoid(alpha=1 / 6), x)), x)


def gelu(g: Builder, x: str) -> str:
    erf = g.rounded(g.node(Erf(), g.rounded(g.node(Div(), x, g.constant(np.float32(1.4142135))))))
    return g.node(
        Mul(), g.node(Mul(), x, g.rounded(g.node(Add(), erf, g.constant(np.float32([1]))))), g.constant(np.float32(0.5))
    )


def kinds(model: Any) -> list[str]:
    return [node.op.rpartition("::")[2] for node in model.report({"x": BYTES.shape}).nodes]


def model_of(kind: Any, dtype: str, shape: Any = ("N", 8, 4, 4)) -> Model:
    g = Builder(dtype)
    x = g.input("x", dtype, shape)
    return g.model([g.quantized(kind(g, g.dequantized(x)))])


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", [silu, hard_swish, gelu])
def test_every_byte(kind: Any, dtype: str, device: str) -> None:
    core, x = dovetail.Core(config=False), BYTES.view(dtype)
    model = core.compile_model(model_of(kind, dtype), device)
    assert kinds(model) == ["ByteTable"]
    expected = core.compile_model(model_of(kind, dtype), "NUMPY", WITHOUT)
    assert "ByteTable" not in kinds(expected)
    for batch in (x, x[:1], x[:0], np.repeat(x, 300, 0)):
        np.testing.assert_array_equal(model({"x": batch})[0], expected({"x": batch})[0])


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_between_convolutions(device: str, rng: np.random.Generator) -> None:
    """Tables make what the second one reads, and what a Split reads dequantized, in the layouts that convolutions have."""
    g = Builder()
    x = g.input("x", "float32", (2, 8, 7, 9))
    wei = rng.integers(-90, 90, (2, 16, 8, 3, 3)).astype(np.int8)

    def convolved(value: str, index: int) -> str:
        weights = g.node(
            DequantizeLinear(),
            g.constant(wei[index, :, : 8 * (index + 1)]),
            g.constant(np.float32(0.004)),
            g.constant(np.int8(0)),
        )
        return g.rounded(g.node(Conv(pads=(1, 1, 1, 1)), value, weights))

    wei = np.concatenate([wei, wei], 2)
    y = g.rounded(silu(g, convolved(g.rounded(x), 0)))
    y = g.rounded(silu(g, convolved(y, 1)))
    parts = g.node(Split(axis=1), y, g.constant(np.int64([6, 10])), outputs=2)
    core = dovetail.Core(config=False)
    model = core.compile_model(g.model([g.node(Softmax(), part) for part in parts]), device)
    data = rng.standard_normal((2, 8, 7, 9)).astype(np.float32)
    found = model({"x": data})
    assert [node.op.rpartition("::")[2] for node in model.report().nodes].count("ByteTable") == 2
    expected = core.compile_model(g.model([g.node(Softmax(), part) for part in parts]), "NUMPY", WITHOUT)({"x": data})
    for one, other in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def _read_in_between(g: Builder, x: str) -> list[str]:
    s = g.node(Sigmoid(), g.dequantized(x))
    return [g.quantized(g.node(Mul(), s, s)), g.node(Softmax(), s)]


def _of_two_values(g: Builder, x: str) -> list[str]:
    y = g.input("y", g.dtype, BYTES.shape)
    return [g.quantized(silu(g, g.node(Add(), g.dequantized(x), g.dequantized(y))))]


def _by_channel(g: Builder, x: str) -> list[str]:
    scales, zeros = g.constant(np.linspace(0.1, 1, 8, dtype=np.float32)), g.constant(np.zeros(8, g.dtype))
    return [g.quantized(silu(g, g.node(DequantizeLinear(axis=1), x, scales, zeros)))]


def _with_a_row(g: Builder, x: str) -> list[str]:
    return [g.quantized(silu(g, g.node(Mul(), g.dequantized(x), g.constant(np.float32([1, 2, 3, 4])))))]


def _only_scaled(g: Builder, x: str) -> list[str]:
    return [g.quantized(g.dequantized(x))]


def _with_quantized_numbers(g: Builder, x: str) -> list[str]:
    """A GELU of static quantization, as onnxruntime's tool writes it."""
    one, half = (g.dequantized(g.constant(np.array(number, g.dtype))) for number in (70, 90))
    real = g.dequantized(x)
    erf = g.rounded(g.node(Add(), g.rounded(g.node(Erf(), g.node(Div(), real, g.constant(np.float32(1.4142))))), one))
    return [g.quantized(g.node(Mul(), g.rounded(g.node(Mul(), real, erf)), half))]


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("make", [_only_scaled, _with_quantized_numbers])
def test_chains_that_no_product_takes(make: Any, device: str) -> None:
    """Another quantization of the same numbers is one too; constants may be quantized themselves."""
    g = Builder()
    model = g.model(make(g, g.input("x", "uint8", BYTES.shape)))
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert kinds(compiled) == ["ByteTable"]
    plain = dovetail.Core(config=False).compile_model(model, "NUMPY", {"PASSES": "-tabulate_bytes,-tabulate_chains"})
    np.testing.assert_array_equal(compiled({"x": BYTES})[0], plain({"x": BYTES})[0])


def _chain(g: Builder, x: str) -> list[str]:
    return [g.quantized(g.node(Erf(), g.rounded(g.node(Sigmoid(), g.dequantized(x)))))]


def _as_floats(g: Builder, x: str) -> list[str]:
    return [silu(g, g.dequantized(x))]


@pytest.mark.parametrize("make", [_read_in_between, _of_two_values, _by_channel, _with_a_row, _chain, _as_floats])
def test_others_stay(make: Any) -> None:
    g = Builder()
    model = dovetail.Core(config=False).compile_model(g.model(make(g, g.input("x", "uint8", BYTES.shape))), "NUMPY")
    assert "ByteTable" not in [node.op.rpartition("::")[2] for node in model.report().nodes]


def test_a_table_of_its_own(rng: np.random.Generator) -> None:
    """Read-only and not contiguous data, in any layout, of any rank."""
    table = rng.permutation(256).astype(np.uint8).view(np.int8)
    g = GraphBuilder()
    model = g.model([g.node(ByteTable(), g.input("x", "int8", (None, None)), g.constant(table))])
    for device in ("NUMPY", "ONEDNN"):
        compiled = dovetail.Core(config=False).compile_model(model, device)
        data = rng.integers(-128, 128, (300, 700)).astype(np.int8)[::-1, ::2]
        data.flags.writeable = False
        np.testing.assert_array_equal(compiled({"x": data})[0], table[data.astype(np.int64) % 256])
