"""Products of few rows and a matrix of 4 or 8 bits, by int8 primitives, against float64."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.op import GraphBuilder
from dovetail_cpu_onednn import node_plans
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix
from dovetail_ops_onnx.mat_mul_digits import MatMulDigits

pytestmark = pytest.mark.skipif(not library().has_int8, reason="no exact sums of 8-bit products")


def _matrix(rng, bits, size, blocks, n, middle):
    scales = rng.uniform(0.1, 1, (blocks, n)).astype(np.float32)
    numbers = rng.integers(0, 2**bits, (blocks * size, n)).astype(np.uint8)
    offsets = (scales * -middle).astype(np.float32)
    weights = numbers * scales.astype(np.float64).repeat(size, 0) + offsets.astype(np.float64).repeat(size, 0)
    if bits == 4:
        return BlockMatrix.of_nibbles(numbers, size, scales, offsets), weights
    return BlockMatrix(8, size, numbers, scales, offsets), weights


def _compiled(matrices, k, activation_bits=0, rows=1):
    g = GraphBuilder()
    a = g.input("a", "float32", (rows, k))
    return Core().compile_model(g.model([m.times(g, a, activation_bits) for m in matrices]), "ONEDNN")


def _kernels(compiled):
    return [node.op for node in compiled.report().nodes]


@pytest.mark.parametrize("size", [16, 32, 64, 80, 128])
@pytest.mark.parametrize(("bits", "middle"), [(4, 8), (4, 2.7), (8, 128), (8, 60)])
@pytest.mark.parametrize(("rows", "n"), [(1, 2501), (1, 900), (2, 2501), (2, 900)])
def test_products(rng, size, bits, middle, rows, n):
    blocks = 7
    k = blocks * size - 5
    matrix, weights = _matrix(rng, bits, size, blocks, n, middle)
    compiled = _compiled([matrix], k, rows=rows)
    for _ in range(2):
        a = (rng.standard_normal((rows, k)) * np.exp(3 * rng.standard_normal(k))).astype(np.float32)
        a[-1, size : 2 * size] = 0
        (got,) = compiled({"a": a}).values()
        largest = np.abs(a).astype(np.float64) @ (np.abs(weights[:k]) + weights.max() / 15)
        assert (np.abs(got - a.astype(np.float64) @ weights[:k]) <= 1e-6 * largest).all()
    assert _kernels(compiled) == ["dovetail::RowDigits", "dovetail::MatMulDigits"]


@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("middle", [8, 3])
@pytest.mark.parametrize("many", [1, 2, 37])
@pytest.mark.parametrize("missing", [0, 5])
def test_one_digit_is_a_row_rounded_to_int8(rng, size, middle, many, missing):
    matrix, weights = _matrix(rng, 4, size, 5, 1100, middle)
    a = rng.standard_normal((many, 5 * size)).astype(np.float32)
    a[-1, size : 2 * size] = 0
    a[:, 5 * size - missing :] = 0
    rows = a.reshape(many, 5, size).astype(np.float64)
    step = np.abs(rows).max(2, keepdims=True) / 127
    rounded = np.rint(rows / np.maximum(step, 1e-30)) * step
    compiled = _compiled([matrix], 5 * size - missing, 8, many)
    (got,) = compiled({"a": a[:, : 5 * size - missing]}).values()
    np.testing.assert_allclose(got, rounded.reshape(many, -1) @ weights, rtol=1e-4, atol=1e-3)
    assert _kernels(compiled) == ["dovetail::RowDigits", "dovetail::MatMulDigits"]


@pytest.mark.parametrize("activation_bits", [0, 8])
def test_products_that_differ_in_their_constants(rng, activation_bits):
    """Plans are kept for nodes that are alike, which are those of another content too."""
    made = [_matrix(rng, bits, 32, 2, 2100, middle) for bits, middle in [(4, 8), (4, 8), (4, 5), (8, 128), (8, 17)]]
    compiled = _compiled([matrix for matrix, _ in made], 64, activation_bits)
    a = rng.standard_normal((1, 64)).astype(np.float32)
    for got, (_, weights) in zip(compiled({"a": a}).values(), made, strict=True):
        largest = np.abs(a).astype(np.float64) @ np.abs(weights).max(1)
        assert (np.abs(got - a.astype(np.float64) @ weights) <= (0.01 if activation_bits else 1e-5) * largest).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("activation_bits", [0, 8])
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_are_not_finite_give_no_numbers(rng, wrong, activation_bits, rows):
    matrix, _ = _matrix(rng, 4, 32, 2, 2100, 8)
    compiled = _compiled([matrix], 64, activation_bits, rows)
    a = rng.standard_normal((rows, 64)).astype(np.float32)
    (before,) = compiled({"a": a}).values()
    changed = a.copy()
    changed[0, 40] = wrong
    (found,) = compiled({"a": changed}).values()
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[1:], before[1:])
    (after,) = compiled({"a": a}).values()
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("scale", [1e-40, 1e-33, 1e-20, 1e30])
def test_rows_of_small_and_large_numbers(rng, scale):
    matrix, weights = _matrix(rng, 4, 64, 2, 1100, 8)
    a = (rng.uniform(1, 2, (1, 128)) * scale).astype(np.float32)
    (got,) = _compiled([matrix], 128)({"a": a}).values()
    want = a.astype(np.float64) @ weights
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=np.abs(want).max() * 1e-4)


@pytest.mark.parametrize("middle", [8, 3])
def test_many_exact_rows_are_multiplied_in_float32(rng, middle):
    matrix, weights = _matrix(rng, 4, 32, 2, 2100, middle)
    g = GraphBuilder()
    compiled = Core().compile_model(g.model([matrix.times(g, g.input("a", "float32", ("n", 64)))]), "ONEDNN")
    for rows in (1, 4, 1, 2, 5, 0, 30):
        a = rng.standard_normal((rows, 64)).astype(np.float32)
        (got,) = compiled({"a": a}).values()
        np.testing.assert_allclose(got, a.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)
        assert _kernels(compiled)[0] == ("dovetail::RowDigits" if rows in (1, 2, 4) else "dovetail::MatMulBlocks")


@pytest.mark.parametrize("has_bfloat16", [False, True])
def test_many_rows_are_multiplied_in_floats(monkeypatch, rng, has_bfloat16):
    """Their products leave the cache, or bfloat16 takes less."""
    if has_bfloat16 and not library().has_bfloat16:
        pytest.skip("the CPU does not multiply bfloat16")
    monkeypatch.setattr(type(library()), "has_bfloat16", has_bfloat16)
    monkeypatch.setattr(node_plans, "NODE_PLANS", node_plans.NodePlans())
    matrix, weights = _matrix(rng, 4, 16, 40, 1100, 8)
    most = 44 if has_bfloat16 else 95
    for rows, kernel in ((most, "dovetail::RowDigits"), (most + 1, "dovetail::MatMulBlocks")):
        a = rng.standard_normal((rows, 640)).astype(np.float32)
        compiled = _compiled([matrix], 640, 8, rows)
        (got,) = compiled({"a": a}).values()
        assert _kernels(compiled)[0] == kernel
        largest = np.abs(a).astype(np.float64) @ np.abs(weights)
        assert (np.abs(got - a.astype(np.float64) @ weights) <= 5e-3 * largest).all()


def test_plans_of_other_rows_read_the_same_packed_weights(monkeypatch, rng):
    packed, pack = [], MatMulDigits.weights
    monkeypatch.setattr(MatMulDigits, "weights", lambda op, q: packed.append(q.shape) or pack(op, q))
    matrix, _ = _matrix(rng, 4, 32, 8, 1600, 8)
    g = GraphBuilder()
    compiled = Core().compile_model(g.model([matrix.times(g, g.input("a", "float32", ("n", 256)), 8)]), "ONEDNN")
    for rows in (1, 20, 40, 2):
        compiled({"a": np.ones((rows, 256), np.float32)})
    assert [columns for _, columns in packed] == [768, 768, 64]


@pytest.mark.parametrize("n", [1100, 1104])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("activation_bits", "size", "order"), [(8, 16, (120, 20, 120, 1, 30)), (0, 32, (9, 3, 20, 9, 2, 1)), (0, 128, (20, 9, 1, 9))]
)
def test_results_do_not_depend_on_the_rows_before(rng, activation_bits, size, order, bits, n):
    matrix, _ = _matrix(rng, bits, size, 40, n, 3)
    g = GraphBuilder()
    model = g.model([matrix.times(g, g.input("a", "float32", ("n", 40 * size)), activation_bits)])
    compiled = Core().compile_model(model, "ONEDNN")
    for rows in order:
        a = rng.standard_normal((rows, 40 * size)).astype(np.float32)
        alone = Core().compile_model(model, "ONEDNN")
        np.testing.assert_array_equal(compiled({"a": a})[0], alone({"a": a})[0])
        assert _kernels(compiled) == _kernels(alone)
