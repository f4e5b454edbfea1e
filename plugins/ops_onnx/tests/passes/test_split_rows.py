"""Rows split into digits, and their products, against MatMulBlocks and against products in float64."""

from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder, Node
from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, MatMulBlocks
from dovetail_ops_onnx.mat_mul_digits import MatMulDigits
from dovetail_ops_onnx.passes.split_rows import split_rows
from dovetail_ops_onnx.row_digits import EXACT, RowDigits

Array = np.ndarray[Any, Any]


def _matrix(rng: np.random.Generator, bits: int, size: int, blocks: int, n: int, middle: float | None) -> BlockMatrix:
    """Random numbers, with offsets that centre them at `middle`, or without."""
    scales = rng.uniform(0.1, 1, (blocks, n)).astype(np.float32)
    offsets = None if middle is None else scales * np.float32(-middle)
    numbers = rng.integers(0, 2**bits, (blocks * size, n)).astype(np.uint8)
    if bits == 4:
        return BlockMatrix.of_nibbles(numbers, size, scales, offsets)
    return BlockMatrix(8, size, numbers.view(np.int8) if middle is None else numbers, scales, offsets)


def _graph(matrices: list[BlockMatrix], dims: tuple[int, ...], activation_bits: int = 0) -> Graph:
    g = GraphBuilder("rows", {"a": TensorType(DType.FLOAT32, dims)})
    return g.graph([matrix.times(g, "a", activation_bits) for matrix in matrices])


def _run(graph: Graph, a: Array) -> list[Array]:
    """The results by references."""
    known = {"a": a, **graph.constants}
    for node in graph.nodes:
        results: Any = node.op.reference(*[known[name] if name else None for name in node.inputs])  # type: ignore[attr-defined]
        known.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False))
    return [known[name] for name in graph.outputs]


def _kinds(graph: Graph) -> list[str]:
    return [node.op.op_type for node in graph.nodes]


@pytest.mark.parametrize("size", [16, 32, 48, 64, 128])
@pytest.mark.parametrize(("bits", "middle"), [(4, 8), (4, 2.7), (4, None), (8, 128), (8, 100), (8, None)])
@pytest.mark.parametrize("rows", [(1, 1), (3, 2)])
def test_products_are_those_of_float32(
    rng: np.random.Generator, size: int, bits: int, middle: float | None, rows: tuple[int, ...]
) -> None:
    matrix = _matrix(rng, bits, size, 5, 1100, middle)
    dims = (*rows, 5 * size - 3)
    graph = _graph([matrix], dims)
    split = split_rows(graph, lambda node, graph: True)
    assert _kinds(split) == ["RowDigits", "MatMulDigits"]
    has_offsets = len(split.nodes[1].inputs) > 4
    assert has_offsets == (middle not in (8, 128, None))
    a = (rng.standard_normal(dims) * np.exp(4 * rng.standard_normal(5 * size - 3))).astype(np.float32)
    a[0, -1, size : 2 * size] = 0
    (found,), (plain,) = _run(split, a), _run(graph, a)
    assert found.shape == plain.shape == (*rows, 1100)
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=2e-6 * np.abs(plain).max())


def test_outliers_do_not_hide_other_numbers(rng: np.random.Generator) -> None:
    a, op = rng.uniform(0.5, 1, (1, 64)).astype(np.float32), RowDigits(64, EXACT)
    a[0, 7] = 30000
    digits, factors, _ = op.reference(a)
    found = (digits[0].astype(np.float64) * factors.reshape(EXACT, 1)).sum(0)
    np.testing.assert_allclose(found, a[0], rtol=0, atol=30000 * 2**-29)


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("count", [1, EXACT])
@pytest.mark.parametrize("many", [1, 3])
def test_digits_times_factors_are_the_rows(rng: np.random.Generator, group: int, count: int, many: int) -> None:
    a, op = rng.standard_normal((many, 150)).astype(np.float32), RowDigits(16, count, group)
    digits, factors, sums = op.reference(a)
    batches = op.batches(150)
    places = digits.reshape(batches, group, count, many, group, 16).astype(np.float64)
    for place in range(group):
        assert not np.delete(places[:, place], place, 3).any()
    rows = np.einsum("bpcmps,mbpc->mbps", places, factors.reshape(many, batches, group, count)).reshape(many, -1)
    step = np.abs(a).max() / (254 if count == 1 else 2**29)
    np.testing.assert_allclose(rows[:, :150], a, rtol=0, atol=step * 1.01)
    assert not rows[:, 150:].any()
    np.testing.assert_allclose(sums, rows.reshape(many, -1, 16).sum(2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [1, EXACT])
def test_blocks_without_a_largest_number_are_nan(wrong: float, count: int) -> None:
    a = np.ones((1, 96), np.float32)
    a[0, 40] = wrong
    _, factors, _ = RowDigits(32, count).reference(a)
    assert np.isnan(factors.reshape(3, count)).all(1).tolist() == [False, True, False]


def test_one_digit_only_where_the_product_allows_it(rng: np.random.Generator) -> None:
    matrix = _matrix(rng, 4, 32, 3, 1100, 8)
    digits = [split_rows(_graph([matrix], (1, 96), bits), lambda node, graph: True).nodes[0].op.count for bits in (0, 8)]  # type: ignore[attr-defined]
    assert digits == [EXACT, 1]


def test_products_of_the_same_row_share_its_digits(rng: np.random.Generator) -> None:
    matrices = [_matrix(rng, 4, 32, 3, 1100, middle) for middle in (8, 8, 3, 3)] + [_matrix(rng, 4, 96, 1, 1100, 8)]
    split = split_rows(_graph(matrices, (1, 96)), lambda node, graph: True)
    assert _kinds(split) == [
        "RowDigits", "MatMulDigits", "MatMulDigits", "RowDigits", "MatMulDigits", "MatMulDigits", "RowDigits", "MatMulDigits",
    ]  # fmt: skip


def test_other_products_stay(rng: np.random.Generator) -> None:
    def keeps(node: Node, graph: Graph) -> bool:
        return not isinstance(node.op, MatMulDigits)

    matrix = _matrix(rng, 4, 32, 3, 1100, 8)
    for graph in (
        _graph([matrix], (0, 96)),
        _graph([_matrix(rng, 4, 32, 3, 8, 8)], (1, 96)),
        _graph([_matrix(rng, 4, 8, 12, 1100, 8)], (1, 96)),
        _graph([BlockMatrix(8, 32, np.ones((96, 1100), np.uint8), matrix.scales)], (1, 96)),
    ):
        assert split_rows(graph, lambda node, graph: True) is graph
    graph = _graph([matrix], (1, 96))
    assert _kinds(split_rows(graph, keeps)) == ["MatMulBlocks"]


def test_models_that_would_take_much_memory_stay(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graph([_matrix(rng, 4, 32, 3, 1100, 8) for _ in range(2)], (1, 96))
    nbytes = sum(graph.constants[node.inputs[1]].nbytes for node in graph.nodes)
    for most, kinds in ((nbytes, ["RowDigits", "MatMulDigits", "MatMulDigits"]), (nbytes - 1, ["MatMulBlocks"] * 2)):
        monkeypatch.setattr("dovetail_ops_onnx.passes.split_rows._MOST", most)
        assert _kinds(split_rows(graph, lambda node, graph: True)) == kinds


def test_refusals() -> None:
    with pytest.raises(OperatorError, match="block_size 32, group 1, count 2; accepted"):
        RowDigits(32, 2)
    with pytest.raises(ShapeError, match="accepted: rows of float32"):
        RowDigits(32).infer(TensorType(DType.FLOAT32, (0, 32)))
    with pytest.raises(OperatorError, match="activation_bits 4"):
        MatMulBlocks(4, 32, 4)
    digits, factors = TensorType(DType.INT8, (2, 4, 64)), TensorType(DType.FLOAT32, (1, 8))
    q, scales = TensorType(DType.UINT8, (48, 5)), TensorType(DType.FLOAT32, (3, 5))
    with pytest.raises(ShapeError, match="accepted: 3 batches"):
        MatMulDigits(4, 32).infer(digits, factors, q, scales)
