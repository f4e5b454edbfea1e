"""MatMulBlocks, its kernel and its reference, against products of weights that are unpacked number by number in float64."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from dovetail.op import DType, HostConfig, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx import mat_mul_blocks
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, MatMulBlocks, block_of

Array = np.ndarray[Any, Any]


def _matrix(rng: np.random.Generator, bits: int, size: int, blocks: int, n: int, dtype: Any = np.uint8) -> tuple[Any, Array]:
    """A matrix and the whole numbers [K, N] in it."""
    low, high = (0, 16) if bits == 4 else (-128, 128) if dtype == np.int8 else (0, 256)
    numbers = (rng.integers(low, high, (blocks * size, n)) / (7 if bits == 16 else 1)).astype(dtype)
    scales, offsets = (rng.standard_normal((blocks, n)).astype(np.float32) for _ in range(2))
    if bits == 4:
        return BlockMatrix.of_nibbles(numbers, size, scales, offsets), numbers
    return BlockMatrix(bits, size, numbers, scales, offsets), numbers.astype(np.float64)


def _computed(matrix: BlockMatrix, a: Array, offsets: Array | None) -> list[Array]:
    """The products by the kernel and by the reference."""
    op = MatMulBlocks(matrix.bits, matrix.block_size)
    inputs = [a, matrix.q, matrix.scales, offsets]
    y = np.full((*a.shape[:-1], matrix.scales.shape[1]), np.nan, np.float32)
    op.kernels[-1].execute(op, HostConfig((), ()), inputs, [y])  # type: ignore[attr-defined]  # it is a host kernel
    return [y, op.reference(a, matrix.q, matrix.scales, offsets)]


@pytest.mark.parametrize(("bits", "dtype"), [(4, np.uint8), (8, np.uint8), (8, np.int8), (16, np.float16), (16, bfloat16)])
@pytest.mark.parametrize("size", [2, 16, 32, 128])
@pytest.mark.parametrize("rows", [(), (0,), (1,), (2, 2), (21,), (2, 0, 3)], ids=str)
def test_products(rng: np.random.Generator, bits: int, dtype: Any, size: int, rows: tuple[int, ...]) -> None:
    blocks, n, k = 3, 7, 3 * size - 1
    matrix, numbers = _matrix(rng, bits, size, blocks, n, dtype)
    a = rng.standard_normal((*rows, k)).astype(np.float32)
    a.setflags(write=False)
    for offsets in (matrix.offsets, None):
        added = np.zeros((blocks, n)) if offsets is None else offsets.astype(np.float64)
        weights = numbers * matrix.scales.astype(np.float64).repeat(size, 0) + added.repeat(size, 0)
        want = a.astype(np.float64) @ weights[:k]
        largest = np.abs(a).astype(np.float64) @ (np.abs(numbers) * np.abs(matrix.scales).repeat(size, 0))[:k] + 1
        for y in _computed(matrix, a, offsets):
            assert y.shape == want.shape
            assert np.all(np.abs(y - want) <= 2e-6 * largest)


@pytest.mark.parametrize("rows", [1, 4, 16, 17])
@pytest.mark.parametrize(("blocks", "n"), [(5, 4200), (30, 300)])
def test_matrices_of_several_parts(monkeypatch: Any, rng: np.random.Generator, rows: int, blocks: int, n: int) -> None:
    monkeypatch.setattr(mat_mul_blocks, "_LONG_TILE", 2**15)  # as matrices are that are larger than this one
    matrix, numbers = _matrix(rng, 4, 32, blocks, n)
    a = rng.standard_normal((rows, blocks * 32)).astype(np.float32)
    want = a.astype(np.float64) @ (numbers * matrix.scales.repeat(32, 0) + matrix.offsets.repeat(32, 0).astype(np.float64))
    np.testing.assert_allclose(_computed(matrix, a, matrix.offsets)[0], want, rtol=1e-4, atol=blocks * 1e-3)


def test_plans_share_a_matrix_while_one_uses_it(rng: np.random.Generator) -> None:
    source, other = rng.integers(0, 16, (32, 3)).astype(np.uint8), np.ones((1, 3), np.float32)
    made = []

    def make() -> BlockMatrix:
        made.append(BlockMatrix.of_nibbles(source, 32, other * 2, None))
        return made[-1]

    first = BlockMatrix.once([source, other], "key", make)
    assert BlockMatrix.once([source[:], other], "key", make).q.ctypes.data == first.q.ctypes.data
    assert BlockMatrix.once([source, other], "another", make).q.ctypes.data != first.q.ctypes.data
    assert BlockMatrix.once([source, other.copy()], "key", make).q.ctypes.data != first.q.ctypes.data
    gone = weakref.ref(first.q.base)
    made.clear()
    del first
    gc.collect()
    assert gone() is None
    assert len(made) == 0
    BlockMatrix.once([source, other], "key", make)
    assert len(made) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_left_to_the_pass_that_widens_them(rng: np.random.Generator, dtype: str) -> None:
    matrix, numbers = _matrix(rng, 4, 32, 2, 5)
    a = DType(dtype).numpy.type(rng.standard_normal((3, 40)))
    op = MatMulBlocks(4, 32)
    found = op.reference(a, matrix.q, matrix.scales, matrix.offsets)
    assert found.dtype == a.dtype
    weights = numbers * matrix.scales.repeat(32, 0) + matrix.offsets.repeat(32, 0).astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), a.astype(np.float64) @ weights[:40], rtol=0.01, atol=0.1)
    types = [TensorType.of(x) for x in (a, matrix.q, matrix.scales, matrix.offsets)]
    assert op.kernels[0].configurations(op, types, (op.infer(*types),)) == ()  # type: ignore[attr-defined]  # it is a host kernel


def test_other_sizes_are_refused() -> None:
    op = MatMulBlocks(4, 32)
    a, q, scales = (TensorType(d, s) for d, s in ((DType.FLOAT32, (3, 40)), (DType.UINT8, (32, 5)), (DType.FLOAT32, (2, 5))))
    assert op.infer(a, q, scales, scales) == a.with_shape((3, 5))
    with pytest.raises(OperatorError, match="bits 3, block_size 32; accepted: 4, 8 or 16"):
        MatMulBlocks(3, 32)
    with pytest.raises(ShapeError, match=r"q is uint8\[32, 5\] for A float32\[3, 70\]"):
        op.infer(a.with_shape((3, 70)), q, scales)
    with pytest.raises(ShapeError, match="A is float64"):
        op.infer(a.with_dtype(DType.FLOAT64), q, scales)
    with pytest.raises(ShapeError, match="offsets float32"):
        op.infer(a, q, scales, scales.with_shape((2, 4)))


@pytest.mark.parametrize("offsets", [True, False])
def test_a_shared_matrix_is_one_block(rng: np.random.Generator, offsets: bool) -> None:
    source = rng.integers(0, 16, (32, 3)).astype(np.uint8)
    added = rng.standard_normal((1, 3)).astype(np.float32) if offsets else None
    made = BlockMatrix.of_nibbles(source, 32, rng.standard_normal((1, 3)).astype(np.float32), added)
    assert block_of(made.arrays) is None
    shared = BlockMatrix.once([source], "block", lambda: made)
    for got, want in zip(shared.arrays, made.arrays, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    block = block_of(shared.arrays)
    assert block is not None
    assert block.nbytes == 64 * (3 if offsets else 2)
    assert [array.ctypes.data - block.ctypes.data for array in shared.arrays] == [0, 64, 128][: len(shared.arrays)]
    assert block_of(shared.arrays[::-1]) is None
    assert block_of(shared.arrays[:1]) is None
