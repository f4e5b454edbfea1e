"""QuantizeLinear and DequantizeLinear of 16 bits against their references."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear


@pytest.mark.parametrize("zero", [0, 7, -9])
@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
@pytest.mark.parametrize("shape", [(3, 7001), (2, 5, 3, 7), (1,), (0, 4), ()], ids=str)
def test_quantizations_of_16_bits(shape, dtype, zero):
    g, rng = GraphBuilder(), np.random.default_rng(1)
    parameters = [g.constant(np.float32(0.25)), g.constant(np.array(abs(zero) if dtype is np.uint16 else zero, dtype))]
    x = g.input("x", "float32", shape)
    y = g.node(QuantizeLinear(), x, *parameters)
    z = g.node(DequantizeLinear(), y, *parameters)
    data = rng.uniform(-9000, 9000, shape).astype(np.float32)
    data.reshape(-1)[:8] = np.float32([0.125, np.nan, 0.375, 0.625, -0.125, 1e9, np.inf, -np.inf])[: data.size]
    compiled = Core().compile_model(g.model([y, z]), "ONEDNN")
    found = compiled({"x": data})
    zero_point = g.graph([y]).constants[parameters[1]]
    want = QuantizeLinear().reference(data, np.float32(0.25), zero_point)
    np.testing.assert_array_equal(found[y], want)
    np.testing.assert_array_equal(found[z], (want.astype(np.float32) - np.float32(zero_point)) * np.float32(0.25))
    assert {node.kernel for node in compiled.report().nodes} == {"blocks"}


def test_beside_blocked_and_channels_last_values():
    """Values of 16 bits have no blocks."""
    g, rng = GraphBuilder(), np.random.default_rng(2)
    x = g.input("x", "float32", (2, 16, 9, 7))
    parameters = [g.constant(np.float32(0.001)), g.constant(np.int16(5))]
    for _ in range(3):
        y = g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12))
        x = g.node(DequantizeLinear(), g.node(QuantizeLinear(), y, *parameters), *parameters)
    model, data = g.model([x]), rng.standard_normal((2, 16, 9, 7)).astype(np.float32)
    got, want = (Core().compile_model(model, device)(data)[0] for device in ("ONEDNN", "NUMPY"))
    np.testing.assert_allclose(got, want, atol=0.0021)
