"""BatchNormalization folded into the product before it: the same numbers within rounding, and every other graph unchanged."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import Graph, GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.passes.fold_norm import fold_norm
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.transpose import Transpose

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

B, L, K, N = 2, 5, 3, 4


class Form:
    """A product, nodes between, and a normalization of N channels; keyword arguments change one thing each."""

    def __init__(self, between: str = "flatten", *, bias: bool = False, dtype: str = "float32", **changed: Any) -> None:
        rng = np.random.default_rng(3)
        self.g = g = GraphBuilder()
        self.x = rng.standard_normal((B, L, K)).astype(dtype)
        x = g.input("x", dtype, self.x.shape)
        self.weights = rng.standard_normal((K, N)).astype(dtype)
        self.row = rng.standard_normal(changed.get("row", N)).astype(dtype)
        weights = g.input("w", dtype, (K, N)) if changed.get("open") else g.constant(self.weights)
        y = self.product = g.node(MatMul(), x, weights, name="product")
        y = g.node(Add(), *((g.constant(self.row), y) if changed.get("turned") else (y, g.constant(self.row)))) if bias else y
        y = self.between(between, y)
        numbers = [rng.standard_normal(N), rng.standard_normal(N), rng.standard_normal(N), rng.uniform(0.5, 2, N)]
        numbers[0] = np.full(N, changed["scale"]) if "scale" in changed else numbers[0]
        numbers[3][0] = changed.get("variance", numbers[3][0])
        self.numbers = [array.astype(dtype) for array in numbers]
        norm = BatchNormalization(training_mode=True) if changed.get("training") else BatchNormalization(epsilon=1e-3)
        outputs = ["y", "mean", "variance"] if changed.get("training") else ["y"]
        g.node(norm, y, *map(g.constant, self.numbers), outputs=outputs, name="norm")
        self.y, self.more = (g.node(Relu(), "y"), []) if changed.get("read", True) else ("y", [])
        self.more = [g.node(Relu(), self.product)] if changed.get("twice") else []
        self.bias, self.name = bias, between

    def between(self, name: str, y: str) -> str:
        g = self.g
        if name == "flatten":
            return str(g.node(Reshape(), g.node(Flatten(axis=2), y), g.constant([B * L, N], "int64")))
        if name == "turned":
            return str(g.node(Transpose(perm=(0, 2, 1)), y))
        if name == "four":
            heads = g.node(Reshape(), y, g.constant([B, 1, L, N], "int64"))
            return str(g.node(Transpose(perm=(0, 3, 1, 2)), heads))
        if name == "wrong axis":  # the axis of the normalization is not that of the columns
            return str(g.node(Reshape(), y, g.constant([5, N, 2], "int64")))
        return y

    def graph(self) -> Graph:
        return fold_constants(self.g.graph([self.y, *self.more]))

    def expected(self) -> np.ndarray[Any, Any]:
        y = self.x.astype(np.float64) @ self.weights.astype(np.float64) + (self.row.astype(np.float64) if self.bias else 0)
        scale, shift, mean, variance = (array.astype(np.float64) for array in self.numbers)
        y = np.maximum((y - mean) / np.sqrt(variance + 1e-3) * scale + shift, 0)
        shapes = {"flatten": lambda a: a.reshape(B * L, N), "turned": lambda a: a.swapaxes(1, 2)}
        return shapes.get(self.name, lambda a: a.reshape(B, 1, L, N).transpose(0, 3, 1, 2))(y)


@pytest.mark.parametrize(
    "bias", [{}, {"bias": True}, {"bias": True, "turned": True}, {"bias": True, "row": ()}, {"bias": True, "row": (1, 1)}]
)
@pytest.mark.parametrize("between", ["flatten", "turned", "four"])
def test_forms(between: str, bias: dict[str, Any]) -> None:
    form = Form(between, **bias)
    folded = fold_norm(form.graph(), {})
    assert "BatchNormalization" not in {node.op.key for node in folded.nodes}
    assert [node.op.key for node in folded.nodes[:2]] == ["MatMul", "Add"]
    np.testing.assert_allclose(evaluated(folded, {"x": form.x})[0], form.expected(), rtol=2e-5, atol=1e-5)


def test_the_result_may_be_an_output() -> None:
    form = Form(read=False)
    folded = fold_norm(form.graph(), {})
    assert folded.outputs == ("y",)
    np.testing.assert_allclose(np.maximum(evaluated(folded, {"x": form.x})[0], 0), form.expected(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"between": "wrong axis"},
        {"open": True},
        {"training": True},
        {"twice": True},
        {"variance": -1.0},
        {"dtype": "float16", "scale": 1e-6},  # weights would be subnormal
        {"dtype": "float16", "scale": 6e4},  # and infinite
    ],
)
def test_what_stays(changed: dict[str, Any]) -> None:
    graph = Form(**changed).graph()
    assert fold_norm(graph, {}) is graph


def test_plans_share_the_new_weights() -> None:
    graph, memory = Form().graph(), {}  # type: ignore[var-annotated]
    first, second = (fold_norm(graph, memory) for _ in range(2))
    assert all(first.constants[name] is second.constants[name] for name in first.constants)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_devices(device: str) -> None:
    form = Form(bias=True)
    compiled = dovetail.Core(config=False).compile_model(form.g.model([form.y]), device)
    (found,) = compiled({"x": form.x}).values()
    np.testing.assert_allclose(found, form.expected(), rtol=2e-5, atol=1e-5)
    assert "fold_norm" in {one.name for one in compiled.report().passes}


def test_a_number_added_before_the_normalization() -> None:
    """Without a product before it, too."""
    g = GraphBuilder()
    number = g.constant(np.array(1.5, np.float32))
    numbers = [g.constant(np.linspace(1, 2, N, dtype=np.float32)) for _ in range(4)]
    y = g.node(BatchNormalization(), g.node(Add(), g.node(Relu(), g.input("x", "float32", (B, N))), number), *numbers)
    graph = fold_constants(g.graph([y]))
    assert fold_norm(graph, {}) == graph
