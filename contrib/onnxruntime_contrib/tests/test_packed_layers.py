"""Layers with packed weights in several sizes: plans are taken over, and results are those of float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.passes import composition
from dovetail_ops_onnx.passes import _typed_again
from dovetail_ops_onnxruntime_contrib import mat_mul_n_bits
from dovetail_ops_onnxruntime_contrib.mat_mul_n_bits import MatMulNBits
from dovetail_ops_onnxruntime_contrib.normalizations import SkipSimplifiedLayerNormalization

LAYERS, WIDTH, BLOCK = 4, 256, 32


@pytest.fixture(autouse=True)
def stays_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of this size would become floats."""
    monkeypatch.setattr(mat_mul_n_bits, "_SMALL", 0)


@pytest.fixture
def layers(rng: np.random.Generator) -> tuple[dovetail.Model, Callable[[NDArray[Any]], NDArray[Any]]]:
    """Products, each normalized beside what came before; and the same in float64."""
    g, steps = dovetail.GraphBuilder(), []
    x = before = g.input("x", "float32", ["N", WIDTH])
    for _ in range(LAYERS):
        packed = rng.integers(0, 256, (WIDTH, WIDTH // BLOCK, BLOCK // 2)).astype(np.uint8)
        scales = rng.uniform(0.01, 0.05, packed.shape[:2]).astype(np.float32)
        weights = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
        product = g.node(MatMulNBits(K=WIDTH, N=WIDTH, block_size=BLOCK), x, g.constant(packed), g.constant(scales))
        x, _, _, before = g.node(SkipSimplifiedLayerNormalization(), product, before, g.constant(weights), outputs=4)
        numbers = np.stack((packed & 15, packed >> 4), -1).reshape(WIDTH, WIDTH) - 8.0
        steps.append(((numbers * scales.astype(np.float64).repeat(BLOCK, 1)).T, weights))

    def wanted(x: NDArray[Any]) -> NDArray[Any]:
        before = y = x.astype(np.float64)
        for matrix, weights in steps:
            before = y @ matrix + before
            y = before / np.sqrt((before**2).mean(1, keepdims=True) + 1e-12) * weights
        return y

    return g.model([x]), wanted


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_further_rows_take_over_what_fits_them(layers: Any, rng: np.random.Generator, device: str) -> None:
    """A few rows are products of digits on ONEDNN where the CPU has int8, many are not, whichever sizes came before."""
    model, wanted = layers
    found: dict[int, list[tuple[str, str]]] = {}
    with dovetail.Core(config=False).compile_model(model, device) as compiled:
        for rows in (100, 2, 5, 90, 3, 110, 7):
            x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
            np.testing.assert_allclose(compiled({"x": x})[0], wanted(x), rtol=1e-4, atol=1e-4)
            report = compiled.report()
            found[rows] = [(node.op, node.kernel) for node in report.nodes]
            is_first = rows == 100 or (rows == 2 and ("dovetail::MatMulDigits" in [op for op, _ in found[2]]))
            assert ([one.name for one in report.passes][-1] == "take_over") == (not is_first), rows
    for rows, nodes in found.items():
        with dovetail.Core(config=False).compile_model(model, device) as compiled:
            compiled.plan(((rows, WIDTH),))
            assert nodes == [(node.op, node.kernel) for node in compiled.report().nodes]


def test_equal_layers_are_composed_once(layers: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    model, wanted = layers
    composed = list[str]()

    def counted(node: Any, *rest: Any) -> Any:
        composed.append(node.op.op_type)
        return composition(node, *rest)

    monkeypatch.setattr(_typed_again, "composition", counted)
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    for rows in (20, 30, 40):
        composed.clear()
        x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
        np.testing.assert_allclose(compiled({"x": x})[0], wanted(x), rtol=1e-4, atol=1e-4)
    # The last layer writes one value less.
    assert sorted(composed) == ["MatMulNBits", *["SkipSimplifiedLayerNormalization"] * 2]
