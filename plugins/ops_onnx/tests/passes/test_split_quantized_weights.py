"""Products of dequantized values by weights with zero points: int8 weights without, the same sums, other graphs unchanged."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import DType, Graph, GraphBuilder, Node
from dovetail.graph.validate import validate
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx import find
from dovetail_ops_onnx.passes.fuse_quantized import hold_quantized
from dovetail_ops_onnx.passes.split_integer_weights import split_quantized_weights
from dovetail_ops_onnx.quantized import Quantized

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

RNG = np.random.default_rng(12)
MAPS, MATRIX = RNG.integers(0, 256, (6, 2, 3, 3)).astype(np.uint8), RNG.integers(0, 256, (33, 4)).astype(np.uint8)
SHAPES = {"Conv": (2, 4, 5, 7), "MatMul": (2, 5, 33), "Gemm": (5, 33)}


def takes_int8(node: Node, graph: Graph) -> bool:
    """As a device whose kernels take int8 weights without zero points."""
    assert isinstance(node.op, Quantized)
    own = node.op.scalings[1]
    return own is not None and own.dtype is DType.INT8 and not own.zero_point.any()


def split(graph: Graph, keeps: Any = takes_int8, memory: dict[str, Any] | None = None) -> Graph:
    return split_quantized_weights(graph, SimpleNamespace(keeps=keeps, memory={} if memory is None else memory))  # type: ignore[arg-type]


def graph_of(kind: str, weights: NDArray[Any], zeros: Any, *, axis: int = 0, bias: bool = True, computed: bool = False) -> Graph:
    """A product of dequantized numbers, whose result is quantized; with a bias where it takes one."""
    g = GraphBuilder()

    def op(name: str, *inputs: str, **attributes: Any) -> str:
        found = find(name, 21)
        assert found is not None
        return str(g.node(found(**attributes), *inputs, name="product" if name == kind else ""))

    zeros = np.asarray(zeros, weights.dtype)
    scales = (np.linspace(0.5, 2, zeros.size) * 0.01).astype(np.float32).reshape(zeros.shape)
    data = op("DequantizeLinear", g.input("x", "uint8", SHAPES[kind]), g.constant(np.float32(0.02)), g.constant(np.uint8(99)))
    stored = g.input("w", str(weights.dtype), weights.shape) if computed else g.constant(weights)
    real = op("DequantizeLinear", stored, g.constant(scales), g.constant(zeros), axis=axis)
    count = weights.shape[0 if kind == "Conv" else 1]
    row = [g.constant(np.linspace(-1, 1, count).astype(np.float32))] if bias and kind != "MatMul" else []
    attributes: dict[str, Any] = {"group": 2, "pads": (1, 1, 1, 1)} if kind == "Conv" else {}
    attributes = {"alpha": 0.5, "beta": 2.0} if kind == "Gemm" else attributes
    y = op(kind, data, real, *row, **attributes)
    y = op("QuantizeLinear", y, g.constant(np.float32(0.1)), g.constant(np.uint8(128)))
    return fold_constants(hold_quantized(g.graph([y])))


@pytest.mark.parametrize(
    ("kind", "weights", "zeros", "axis", "parts"),
    [
        ("Conv", MAPS, 117, 0, 2),
        ("Conv", MAPS, [1, 90, 128, 129, 200, 255], 0, 2),
        ("Conv", np.clip(MAPS, 100, 200), 90, 0, 1),
        ("Conv", MAPS.view(np.int8), -13, 0, 2),
        ("MatMul", MATRIX, 140, 0, 2),
        ("MatMul", MATRIX, [3, 128, 130, 140], 1, 2),
        ("Gemm", MATRIX, 120, 0, 2),
    ],
    ids=lambda value: str(value) if not isinstance(value, np.ndarray) else "",
)
def test_same_sums(kind: str, weights: NDArray[Any], zeros: Any, axis: int, parts: int) -> None:
    before = graph_of(kind, weights, zeros, axis=axis)
    after = split(before)
    validate(after)
    kinds = [node.op.op_type for node in after.nodes if node.op.op_type != "DequantizeLinear"]
    assert kinds == [kind] * parts + ["Add"] * (parts - 1) + ["QuantizeLinear"]
    x = np.random.default_rng(1).integers(0, 256, SHAPES[kind]).astype(np.uint8)
    ((expected,), (got,)) = evaluated(before, {"x": x}), evaluated(after, {"x": x})
    assert np.abs(got.astype(int) - expected).max() <= 1  # sums of floats in another order
    assert (got == expected).mean() > 0.98
    assert len(np.unique(expected)) > 15


@pytest.mark.parametrize("keeps", [lambda node, graph: True, lambda node, graph: False], ids=["has a kernel", "has none"])
def test_what_stays(keeps: Any) -> None:
    graph = graph_of("Conv", MAPS, 117)
    assert split(graph, keeps) is graph


def test_what_need_not_or_cannot_be_split() -> None:
    def never(node: Node, graph: Graph) -> bool:
        raise AssertionError(node)

    for graph in (
        graph_of("Conv", MAPS, 128),
        graph_of("Conv", MAPS.view(np.int8), 0),
        graph_of("Conv", MAPS, 117, computed=True),
    ):
        assert split(graph, never) is graph
    largest = MAPS.copy()
    largest.flat[0] = 255  # no sum of two int8 numbers
    graph = graph_of("Conv", largest, 0)
    assert split(graph) is graph


def test_plans_share_the_parts() -> None:
    memory: dict[str, Any] = {}
    graph = graph_of("MatMul", MATRIX, 140)
    one, other = (split(graph, memory=memory) for _ in range(2))
    parts = [name for name in one.constants if ".weights" in name]
    assert len(parts) == 2
    assert all(one.constants[name] is other.constants[name] for name in parts)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_devices_multiply_bytes(device: str) -> None:
    """Static quantization to uint8 gives weights a zero point."""
    rng, g = np.random.default_rng(6), GraphBuilder()
    weights = rng.integers(0, 256, (8, 4, 3, 3)).astype(np.uint8)

    def op(name: str, *inputs: str, **attributes: Any) -> str:
        found = find(name, 21)
        assert found is not None
        return str(g.node(found(**attributes), *inputs))

    def number(value: float) -> str:
        return str(g.constant(np.float32(value)))

    data = op("DequantizeLinear", g.input("x", "uint8", ("n", 4, 6, 6)), number(0.02), g.constant(np.uint8(99)))
    real = op("DequantizeLinear", g.constant(weights), number(0.01), g.constant(np.uint8(131)))
    y = op("QuantizeLinear", op("Relu", op("Conv", data, real)), number(0.2), g.constant(np.uint8(3)))
    compiled = dovetail.Core().compile_model(g.model([y]), device)
    for batch in (2, 1, 3):
        given = rng.integers(0, 256, (batch, 4, 6, 6)).astype(np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(given.astype(np.int64) - 99, (3, 3), (2, 3))
        exact = np.einsum("nchwij,kcij->nkhw", windows, weights.astype(np.int64) - 131) * 0.02 * 0.01
        expected = np.clip(np.rint(np.maximum(exact, 0) / 0.2) + 3, 0, 255)
        (got,) = compiled({"x": given}).values()
        assert np.abs(got - expected).max() <= 1
        assert (got == expected).mean() > 0.97
        assert len(np.unique(expected)) > 30
    if device == "ONEDNN":
        assert [node.op for node in compiled.report().nodes].count("dovetail::QuantizedConv") == 2
