"""QuantizeLinear and DequantizeLinear of 8 bits by parameters that are computed while the model runs."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear


@pytest.mark.parametrize("zero", [None, -3, 0, 7, 100])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("scale", [np.float32(0.25), np.float32([0.037]), np.float32(-0.5), np.float32(0)], ids=str)
@pytest.mark.parametrize("shape", [(3, 701), (2, 5, 3, 7), (1,)], ids=str)
def test_parameters_are_inputs(shape, scale, dtype, zero):
    g, rng = GraphBuilder(), np.random.default_rng(1)
    point = np.array([zero or 0]).astype(dtype).reshape(scale.shape)
    inputs = {"x": "float32", "y": np.dtype(dtype).name}
    data = {"x": rng.uniform(-40, 40, shape), "y": rng.integers(0, 255, shape)}
    feed = {name: array.astype(inputs[name]) for name, array in data.items()} | {"s": scale}
    with np.errstate(all="ignore"):
        halves = (np.round(feed["x"].reshape(-1)[::2] / scale) + np.float32(0.5)) * scale
    feed["x"].reshape(-1)[::2] = np.nan_to_num(halves)
    parameters = [g.input("s", "float32", scale.shape)]
    if zero is not None or dtype is np.int8:
        parameters.append(g.input("z", np.dtype(dtype).name, scale.shape))
        feed["z"] = point
    ends = [g.node(op(), g.input(n, inputs[n], shape), *parameters) for n, op in (("x", QuantizeLinear), ("y", DequantizeLinear))]
    compiled = Core().compile_model(g.model(ends), "ONEDNN")
    found = compiled(feed)
    assert {node.kernel for node in compiled.report().nodes} <= {"jit:uni int8", "simple:any int8"}
    with np.errstate(all="ignore"):
        expected = np.rint(feed["x"] / scale).astype(np.float64) + point
    limits = np.iinfo(dtype)
    if scale.any():  # else 0 / 0, which the standard leaves open
        np.testing.assert_array_equal(found[ends[0]], np.clip(expected, limits.min, limits.max).astype(dtype))
    np.testing.assert_array_equal(found[ends[1]], (feed["y"].astype(np.float32) - point.astype(np.float32)) * scale)


def test_between_convolutions():
    """In whatever layout the convolutions take."""
    g, rng = GraphBuilder(), np.random.default_rng(2)
    parameters = [g.input("s", "float32", ()), g.input("z", "uint8", ())]
    x = g.input("x", "float32", (2, 16, 9, 7))
    for _ in range(3):
        y = g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12))
        x = g.node(DequantizeLinear(), g.node(QuantizeLinear(), y, *parameters), *parameters)
    model = g.model([x])
    feed = {"x": rng.standard_normal((2, 16, 9, 7)).astype(np.float32), "s": np.float32(0.03), "z": np.uint8(121)}
    got, want = (Core().compile_model(model, device)(feed)[0] for device in ("ONEDNN", "NUMPY"))
    np.testing.assert_allclose(got, want, atol=0.061)
