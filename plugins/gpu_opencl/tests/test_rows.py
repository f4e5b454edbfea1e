"""Rows of bytes in a format of a file: products with them on CPUs, and rows taken by their numbers on GPUs, against float64."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from dovetail.device import DeviceInfo, DType
from dovetail.errors import InferError
from dovetail.testing import KernelBench
from dovetail_gpu_opencl.kernels import _packed_blocks
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix
from dovetail_ops_onnx.mat_mul_rows import MatMulRows, RowFormat
from dovetail_ops_onnx.take_rows import TakeRows

SAMPLED = pytest.mark.exhaustive(0.3)  # each compiles programs

Array = NDArray[Any]

SIZE = 18
"""Columns of a block."""


@pytest.fixture(scope="session")
def info(infos: Sequence[DeviceInfo]) -> DeviceInfo:
    """The first device alone: drivers for CPUs take long to build the kernels."""
    return infos[0]


class Rows:
    """`count` random rows of `columns` numbers. A row of bytes is its number in the tables that the format reads."""

    def __init__(self, rng: np.random.Generator, bits: int, dtype: Any, count: int, columns: int, *, halves: bool = True) -> None:
        low, high = {"uint8": (0, 16), "int8": (-128, 128)}.get(np.dtype(dtype).name, (-99, 99))
        blocks = -(-columns // SIZE)
        numbers = rng.integers(low, high, (count, blocks * SIZE)).astype(dtype)
        scales, offsets = (rng.standard_normal((count, blocks)).astype(np.float32) for _ in range(2))
        if halves:
            scales, offsets = (x.astype(np.float16).astype(np.float32) for x in (scales, offsets))
        self.floats = (numbers * scales.astype(np.float64).repeat(SIZE, 1) + offsets.repeat(SIZE, 1))[:, :columns]
        self.bytes = np.arange(count, dtype=np.uint32)[:, None].view(np.uint8)
        self.read: list[int] = []
        """How many rows each call asked for."""

        def matrix(rows: Array) -> BlockMatrix:
            self.read.append(len(rows))
            at = np.ascontiguousarray(rows).view(np.uint32)[:, 0]
            made = np.ascontiguousarray(scales[at].T), np.ascontiguousarray(offsets[at].T)
            if bits == 4:
                return BlockMatrix.of_nibbles(numbers[at].T, SIZE, *made)
            return BlockMatrix(bits, SIZE, np.ascontiguousarray(numbers[at].T), *made)

        def floats(rows: Array, chosen: Array) -> Array:
            return np.asarray(self.floats[np.ascontiguousarray(rows[chosen]).view(np.uint32)[:, 0]], np.float32)

        self.format = RowFormat(f"test {id(self)}", columns, bits, SIZE, DType.of(np.dtype(dtype)), True, matrix, floats)


@SAMPLED
@pytest.mark.parametrize("halves", [True, False])
@pytest.mark.parametrize(("bits", "dtype"), [(4, np.uint8), (8, np.int8), (16, bfloat16)], ids=lambda x: str(x)[:12])
def test_products_pack_rows_part_by_part(
    bits: int, dtype: Any, halves: bool, kind_device: Callable[[str], Any], bench: Any, rng: Any, monkeypatch: Any
) -> None:
    """For one row of A and several; rows that do not fill the last tile, columns that do not fill the last block."""
    monkeypatch.setattr(_packed_blocks, "_PART", 1)
    device, rows = kind_device("CPU"), Rows(rng, bits, dtype, 150, 70, halves=halves)
    for count in (1, 3):
        a = rng.standard_normal((count, 70)).astype(np.float32)
        graph, feeds = KernelBench.single(MatMulRows(rows.format), [a, rows.bytes], (1,))
        got, want = bench.run(device, graph, feeds)[0], a.astype(np.float64) @ rows.floats.T
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * float((np.abs(a) @ np.abs(rows.floats.T)).max()) * 10)
    assert max(rows.read) <= 64  # a tile, at most
    assert sum(rows.read) < 150 * (2 if halves else 4) + 1


def test_plans_share_the_packed_rows(kind_device: Callable[[str], Any], rng: Any) -> None:
    device, rows = kind_device("CPU"), Rows(rng, 4, np.uint8, 100, 36)
    graph, _ = KernelBench.single(MatMulRows(rows.format), [rng.standard_normal((1, 36)).astype(np.float32), rows.bytes], (1,))
    first = device.compile(graph, {})
    read = sum(rows.read)
    second = device.compile(graph, {})
    assert read == sum(rows.read) == 100
    assert first.constants().keys() == second.constants().keys()


@SAMPLED
@pytest.mark.parametrize(("bits", "dtype"), [(4, np.uint8), (8, np.int8), (16, np.float16)], ids=lambda x: str(x)[:12])
def test_rows_are_taken_from_the_matrix_of_products(
    bits: int, dtype: Any, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    device, rows = kind_device("GPU"), Rows(rng, bits, dtype, 9, 35)
    for indices in (np.array([[8, 0, 3], [3, 3, 1]]), np.array([], np.int64)):
        graph, feeds = KernelBench.single(TakeRows(rows.format), [rows.bytes, indices], (0,))
        got = bench.run(device, graph, feeds)[0]
        assert got.shape == (*indices.shape, 35)
        np.testing.assert_allclose(got, rows.floats[indices], rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("index", [-1, 9])
def test_a_number_that_is_not_that_of_a_row(index: int, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    rows = Rows(rng, 4, np.uint8, 9, 36)
    graph, feeds = KernelBench.single(TakeRows(rows.format), [rows.bytes, np.array([1, index])], (0,))
    with pytest.raises(InferError, match="an index is not that of a row; accepted: 0 to 8"):
        bench.run(kind_device("GPU"), graph, feeds)
