"""Few rows by the machine code for matrices of 4 and 8 bits: against products in float64, and what it leaves to other kernels."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from dovetail.op import DType, HostConfig, TensorType
from dovetail_ops_onnx import _packed_rows
from dovetail_ops_onnx._machine_code import loaded
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, MatMulBlocks

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(_packed_rows.native() is None, reason="no AVX2 and FMA, or no executable memory")


def _product(a: Array, matrix: BlockMatrix, offsets: Array | None) -> Array:
    """In memory between numbers that must stay."""
    rows, n = a.size // a.shape[-1], matrix.scales.shape[1]
    memory = np.full((rows + 2) * n, np.nan, np.float32)
    y = memory[n:-n].reshape(*a.shape[:-1], n)
    op = MatMulBlocks(matrix.bits, matrix.block_size)
    run = _packed_rows.PackedRows().bind(op, HostConfig((), ()), [a, matrix.q, matrix.scales, offsets], [y])
    run()
    first = y.copy()
    run()
    np.testing.assert_array_equal(y, first)
    assert np.isnan(memory[:n]).all()
    assert np.isnan(memory[-n:]).all()
    return y


@pytest.mark.parametrize("rows", [(), (1,), (2,), (3,), (1, 4), (16,)], ids=str)
@pytest.mark.parametrize("n", [8, 40, 64, 136, 200])
@pytest.mark.parametrize(("size", "k"), [(2, 6), (16, 47), (32, 96), (128, 100)])
@pytest.mark.parametrize("offsets", ["none", "one number", "several"])
@pytest.mark.parametrize(("bits", "dtype"), [(4, np.uint8), (8, np.uint8), (8, np.int8)])
def test_products(
    rng: np.random.Generator, rows: tuple[int, ...], n: int, size: int, k: int, offsets: str, bits: int, dtype: type
) -> None:
    blocks = -(-k // size)
    numbers = rng.integers(*(-128, 128) if dtype == np.int8 else (0, 1 << bits), (blocks * size, n)).astype(dtype)
    scales = rng.standard_normal((blocks, n)).astype(np.float32)
    added = {"none": None, "one number": scales * np.float32(-8), "several": rng.standard_normal((blocks, n)).astype(np.float32)}
    if bits == 4:
        matrix = BlockMatrix.of_nibbles(numbers, size, scales, added[offsets])
    else:
        matrix = BlockMatrix(8, size, numbers, scales, added[offsets])
    a = rng.standard_normal((*rows, k)).astype(np.float32)
    a.setflags(write=False)
    exact = np.zeros((blocks, n)) if matrix.offsets is None else matrix.offsets.astype(np.float64)
    weights = (numbers * scales.astype(np.float64).repeat(size, 0) + exact.repeat(size, 0))[:k]
    largest = np.abs(a).astype(np.float64) @ (2**bits * np.abs(scales).repeat(size, 0) + np.abs(exact).repeat(size, 0))[:k]
    assert np.all(np.abs(_product(a, matrix, matrix.offsets) - a.astype(np.float64) @ weights) <= 1e-6 * largest)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_change_no_other_row(rng: np.random.Generator, wrong: float) -> None:
    scales = rng.standard_normal((2, 8)).astype(np.float32)
    matrix = BlockMatrix.of_nibbles(rng.integers(0, 16, (64, 8)).astype(np.uint8), 32, scales, scales * np.float32(-8))
    a = rng.standard_normal((3, 64)).astype(np.float32)
    want = _product(a, matrix, matrix.offsets).copy()
    a[1, 40] = wrong
    found = _product(a, matrix, matrix.offsets)
    assert not np.isfinite(found[1]).any()
    np.testing.assert_array_equal(found[::2], want[::2])


def test_calls_keep_the_memory_that_they_read(rng: np.random.Generator) -> None:
    q, scales = rng.integers(0, 256, (64, 512)).astype(np.uint8), np.ones((4, 512), np.float32)
    a, y, gone = (
        rng.standard_normal((1, 128)).astype(np.float32),
        np.empty((1, 512), np.float32),
        [weakref.ref(q), weakref.ref(scales)],
    )
    run = _packed_rows.PackedRows().bind(MatMulBlocks(4, 32), HostConfig((), ()), [a, q, scales, None], [y])
    del q, scales
    gc.collect()
    assert all(one() is not None for one in gone)
    run()
    assert np.isfinite(y).all()
    del run
    gc.collect()
    assert all(one() is None for one in gone)


def test_matrices_it_leaves_to_others() -> None:
    def takes(bits: int, a: tuple[int, ...], n: int, dtype: DType = DType.FLOAT32) -> bool:
        return MatMulBlocks(bits, 32).has_machine_code(TensorType(dtype, a), n)

    assert takes(4, (16, 64), 72)
    assert takes(4, (64,), 8)
    assert takes(8, (1, 64), 72)
    assert not takes(16, (1, 64), 72)
    assert not takes(4, (17, 64), 72)
    assert not takes(4, (0, 64), 72)
    assert not takes(4, (1, 0), 72)
    assert not takes(4, (1, 64), 71)
    assert not takes(4, (1, 64), 0)
    assert not takes(4, (1, 64), 72, DType.FLOAT16)


def test_processors_without_its_instructions() -> None:
    assert loaded((b"\xc3",), "AVX2", "FMA3") is not None
    assert loaded((b"\xc3",), "AVX2", "NONE_SUCH") is None
