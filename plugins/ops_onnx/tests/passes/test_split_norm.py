"""BatchNormalization of dequantized numbers as Mul and Add: the same numbers within rounding, and what is left as it is."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx import find
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.passes.fuse_quantized import hold_quantized
from dovetail_ops_onnx.passes.split_norm import split_norm

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

C = 3


def norm(dims: tuple[int, ...] = (2, C, 5), *, version: int = 21, dtype: str = "float32", **changed: Any) -> Graph:
    """A normalization of C channels behind a DequantizeLinear; keyword arguments change one thing each."""
    rng, g = np.random.default_rng(8), GraphBuilder()

    def op(name: str, *inputs: str, outputs: Any = 1, **attributes: Any) -> Any:
        found = find(name, version if name == "BatchNormalization" else 21)
        assert found is not None
        return g.node(found(**attributes), *inputs, outputs=outputs)

    def real(values: Any) -> str:
        return str(g.constant(np.asarray(values, dtype)))

    x = g.input("x", "uint8", dims)
    value = op("DequantizeLinear", x, real(0.03), g.constant(np.uint8(99)))
    if changed.get("sums"):
        w = g.constant(np.arange(-40, 41, 10, dtype=np.int8).reshape(C, C, *(1,) * (len(dims) - 2)))
        value = g.node(ConvIntegerToFloat(), x, w, g.constant(np.uint8(99)), "", real(0.03), real(0.02))
        value = op("Add", value, op("Abs", value)) if changed["sums"] in ("added", "scaled") else value
        value = op("Mul", real(0.5), value) if changed["sums"] == "scaled" else value
    value = op("Relu", value) if changed.get("between") else value
    numbers = [rng.standard_normal(C), rng.standard_normal(C), rng.standard_normal(C), rng.uniform(0.5, 2, C)]
    if "scale" in changed:
        numbers[0], numbers[3] = np.full(C, changed["scale"]), np.full(C, 0.5)
    names = [real(array) for array in numbers]
    if changed.get("quantized"):  # as onnxruntime's tool leaves the factors: int8 with one scale
        names[0] = op("DequantizeLinear", g.constant(np.array([-100, 7, 64], np.int8)), real(0.01), g.constant(np.int8(0)))
    if changed.get("computed"):
        names[2] = g.input("mean", dtype, (C,))
    outputs = ["y", "mean_out", "variance_out"] if changed.get("training") else ["y"]
    attributes = {"training_mode": 1} if changed.get("training") else {"spatial": 0} if changed.get("each") else {}
    op("BatchNormalization", value, *names, outputs=outputs, epsilon=1e-3, **attributes)
    return fold_constants(hold_quantized(g.graph(["y"])))


@pytest.mark.parametrize("sums", ["alone", "added", "scaled"])
def test_norms_of_sums_of_integers(sums: str) -> None:
    before = norm(sums=sums)
    after = split_norm(before)
    assert [node.op.key for node in after.nodes][-2:] == ["Mul", "Add"]
    assert "BatchNormalization" not in {node.op.key for node in after.nodes}
    x = np.random.default_rng(5).integers(0, 256, (2, C, 5)).astype(np.uint8)
    (got,), (want,) = evaluated(after, {"x": x}), evaluated(before, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize(
    ("dims", "version"), [((2, C), 21), ((2, C, 5), 21), ((0, C, 4, 5), 15), ((1, C, 2, 3, 4), 9), ((2, C, 5), 7)]
)
def test_same_numbers(dims: tuple[int, ...], version: int, quantized: bool) -> None:
    before = norm(dims, version=version, quantized=quantized)
    after = split_norm(before)
    validate(after)
    assert [node.op.op_type for node in after.nodes] == ["DequantizeLinear", "Mul", "Add"]
    assert after.nodes[-1].name == next(n.name for n in before.nodes if n.op.op_type == "BatchNormalization")
    x = np.random.default_rng(1).integers(0, 256, dims).astype(np.uint8)
    ((expected,), (got,)) = evaluated(before, {"x": x}), evaluated(after, {"x": x})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert got.dtype == expected.dtype


@pytest.mark.parametrize(
    "changed",
    [
        {"between": True},
        {"computed": True},
        {"training": True},
        {"dtype": "float16"},
        {"scale": 3.3e38},  # factors beyond float32
        {"version": 7, "each": True},
    ],
    ids=str,
)
def test_other_forms_stay(changed: Any) -> None:
    graph = norm((2, C), **changed) if "each" in changed else norm(**changed)
    assert split_norm(graph) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_devices_compute_it_behind_the_convolution(device: str) -> None:
    """A model quantized before its norms were folded: one operator, and stored numbers at most one apart from the graph's own."""
    rng, g = np.random.default_rng(5), GraphBuilder()

    def op(name: str, *inputs: str, **attributes: Any) -> str:
        found = find(name, 21)
        assert found is not None
        return str(g.node(found(**attributes), *inputs))

    def real(values: Any) -> str:
        return str(g.constant(np.asarray(values, np.float32)))

    zero = g.constant(np.uint8(128))
    x = op("DequantizeLinear", g.input("x", "uint8", ("n", 8, 6, 6)), real(0.02), zero)
    weights = rng.integers(-128, 128, (C, 8, 3, 3)).astype(np.int8)
    sums = op("Conv", x, op("DequantizeLinear", g.constant(weights), real(0.01), g.constant(np.int8(0))))
    inner = op("DequantizeLinear", op("QuantizeLinear", sums, real(0.1), zero), real(0.1), zero)
    scale, shift, mean, variance = rng.uniform(0.5, 1, C), rng.standard_normal(C), rng.standard_normal(C), rng.uniform(1, 2, C)
    y = op("QuantizeLinear", op("BatchNormalization", inner, *map(real, (scale, shift, mean, variance))), real(0.15), zero)
    compiled = dovetail.Core().compile_model(g.model([y]), device)

    def stored(values: NDArray[Any], step: float) -> NDArray[Any]:
        found: NDArray[Any] = np.clip(np.rint(values / step) + 128, 0, 255)
        return found

    for batch in (2, 1, 3):  # the plans of the last two are taken over
        given = rng.integers(0, 256, (batch, 8, 6, 6)).astype(np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(given.astype(np.int64) - 128, (3, 3), (2, 3))
        exact = np.einsum("nchwij,kcij->khwn", windows, weights.astype(np.int64)) * 0.02 * 0.01
        middle = (stored(exact, 0.1) - 128) * 0.1
        scaled = (middle.T - mean) / np.sqrt(variance + 1e-5) * scale + shift
        expected = stored(scaled, 0.15).transpose(0, 3, 2, 1)
        (got,) = compiled({"x": given}).values()
        assert np.abs(got - expected).max() <= 1
        assert (got == expected).mean() > 0.97
        assert len(np.unique(expected)) > 30
    nodes = [(node.op, node.post_ops) for node in compiled.report().nodes]
    assert "BatchNormalization" not in dict(nodes)
    if device == "ONEDNN":
        assert [post_ops for op, post_ops in nodes if op == "dovetail::QuantizedConv"] == [
            ("requantize", "mul", "add", "quantize")
        ]
