"""Products of quantized values, element by element and by numbers of channels, in every layout."""

from dataclasses import replace

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DType, Node, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels._quantized import AnyLayoutQuantizedKernel
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

pytestmark = pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions for 8-bit products")
SHAPES = [
    ((1, 24, 5, 6), (1, 24, 1, 1), "never"),
    ((3, 24, 5, 6), (3, 24, 1, 1), "map"),
    ((2, 7, 5), (7, 1), "never"),
    ((1, 32, 5, 6), (1, 32, 5, 6), "both"),
    ((2, 32, 80), (2, 32, 80), "both"),
    ((1, 24, 1, 1), (1, 24, 1, 1), "never"),
    ((7, 33), (7, 33), "never"),
]
"""With which zero points a product is left to float32: that of the first factor, or both."""

ZEROS = [(0, 0, 0), (31, 0, 9), (0, 200, 128), (255, 7, 64)]


def scaling(scale, zero, dtype=np.uint8):
    return Scaling(np.array(scale, np.float32), np.array(zero, dtype))


def real(array, one):
    return (array.astype(np.float64) - float(one.zero_point)) * float(one.scale)


def wanted(a, b, scalings):
    limits, y = np.iinfo(scalings[2].dtype.numpy), scalings[2]
    steps = np.rint(real(a, scalings[0]) * real(b, scalings[1]) / float(y.scale)) + float(y.zero_point)
    return np.clip(steps, limits.min, limits.max).astype(y.dtype.numpy)


def typed(array):
    return TensorType(DType.of(array.dtype), array.shape)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", ZEROS, ids=str)
@pytest.mark.parametrize(("one", "other", "left"), SHAPES, ids=str)
def test_every_configuration(one, other, left, zeros, dtype):
    """Channels last too, where oneDNN takes float32 of the result's shape for numbers of 8 bits."""
    rng, shift = np.random.default_rng(4), -128 if dtype is np.int8 else 0
    zeros = [zero + shift if zero else 0 for zero in zeros]
    scalings = [scaling(scale, zero, dtype) for scale, zero in zip((0.03, 0.02, 0.041), zeros, strict=True)]
    arrays = [rng.integers(shift, shift + 256, shape).astype(dtype) for shape in (one, other)]
    op, types = Quantized((QuantizedStep(Mul(), (0, 1)),), tuple(scalings[:2]), scalings[2]), [*map(typed, arrays)]
    want = wanted(*arrays, scalings)
    plain = TypedNode(Node("n", op, ("a", "b"), ("y",)), tuple(types), (typed(want),))
    kernel, tried = AnyLayoutQuantizedKernel(), 0
    for config in kernel.configurations(plain):
        if not config.outputs[0].is_permutation or (config.holds is not None and not config.holds()):
            continue
        inputs = tuple(t.with_layout(layout) for t, layout in zip(types, config.inputs, strict=True))
        result = plain.outputs[0].with_layout(config.outputs[0])
        plan = kernel.plan(replace(plain, inputs=inputs, outputs=(result,)), False, False)
        held = {
            "input": [np.ascontiguousarray(a.transpose(t.layout.order(a.ndim))) for a, t in zip(arrays, inputs, strict=True)],
            "output": [np.zeros(result.memory_dims, dtype)],
            "scratch": [np.full(size, 255, np.uint8) for size in plan.scratch],
        }
        for stage in plan.stages:
            data = [(a, held[a.place][a.index] if a.value is None else a.value) for a in stage.arguments]
            library().execute(stage.desc, [(a.arg, a.desc, array.ctypes.data) for a, array in data])
        distance = np.abs(held["output"][0].astype(int) - want.transpose(result.layout.order(want.ndim)))
        assert distance.max() <= 1
        assert (distance == 0).mean() > 0.99
        assert not plan.is_reference
        tried += 1
    assert (tried == 0) == {"never": False, "map": zeros[0] != 0, "both": zeros[0] != 0 != zeros[1]}[left]


@pytest.mark.parametrize("scales", [(0.03, 0.02, 0.041), (0.5, 0.25, 1.0)], ids=["usual", "exact halves"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_map_times_a_gate(swapped, scales):
    """Squeeze and excitation, on either side; halves go to even before the odd zero point is added."""
    g, rng = GraphBuilder(), np.random.default_rng(5)
    scalings = [scaling(scale, zero) for scale, zero in zip(scales, (3, 2, 101), strict=True)]
    arrays = [rng.integers(0, 256, shape).astype(np.uint8) for shape in ((1, 8, 9, 9), (1, 8, 1, 1))]
    parameters = [(g.constant(one.scale), g.constant(one.zero_point)) for one in scalings]
    names = [g.input(name, "uint8", a.shape) for name, a in zip("ab", arrays, strict=True)]
    sides = [g.node(DequantizeLinear(), name, *one) for name, one in zip(names, parameters, strict=False)]
    y = g.node(QuantizeLinear(), g.node(Mul(), *(sides[::-1] if swapped else sides)), *parameters[2])
    compiled = Core(config=False).compile_model(g.model([y]), "ONEDNN")
    (got,) = compiled(dict(zip(names, arrays, strict=True))).values()
    distance = np.abs(got.astype(int) - wanted(*arrays, scalings))
    kinds = [node.op.rpartition("::")[2] for node in compiled.report().nodes]
    is_exact = scales[2] == 1
    assert distance.max() <= (0 if is_exact else 1)
    assert (kinds == ["QuantizedMul"]) == (not is_exact)
