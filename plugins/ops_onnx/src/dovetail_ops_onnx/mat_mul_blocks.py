"""MatMul with a matrix of 4 or 8 bits in blocks. Operators with packed weights are composed of it; it is not in the standard."""

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import (
    AbstractOperator,
    DType,
    GraphBuilder,
    HostConfig,
    HostKernel,
    KernelSource,
    OperatorError,
    Port,
    ShapeError,
    TensorType,
)
from dovetail_ops_onnx._one_block import block_of, once
from dovetail_ops_onnx._packed_rows import PackedRows, takes

__all__ = ["BlockMatrix", "MatMulBlocks", "block_of", "once"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]

_TILE = 1 << 18
"""Numbers that are unpacked at a time: 1 MiB as float32, which stays in the second-level cache."""

_LONG_TILE = 1 << 20
"""The same for few rows of A, where each call counts: half or twice as many take up to 15 % longer."""

_FEW = 8
"""Rows of A up to which the sums of blocks are scaled; above, scaling the weights takes less."""


_KINDS = {4: (DType.UINT8,), 8: (DType.UINT8, DType.INT8), 16: (DType.FLOAT16, DType.BFLOAT16)}
"""The types of the packed numbers."""

_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


class Unpacked(HostKernel):
    """Unpacks a part of the matrix that fits the cache into float32, multiplies, and goes on to the next part."""

    def configurations(self, op: Any, inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        # Halves are left to the pass `widen_halves`, which spares the conversions between such products.
        return (HostConfig.uniform(inputs, outputs),) if outputs[0] and outputs[0].dtype is DType.FLOAT32 else ()

    def execute(self, op: "MatMulBlocks", config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Any]) -> None:
        a, q, scales, offsets = inputs
        assert a is not None
        assert q is not None
        assert scales is not None
        blocks, n = scales.shape
        rows = _filled(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), blocks * op.block_size)
        y = outputs[0].reshape(len(rows), n)
        if offsets is None:
            y[...] = 0
        else:
            np.matmul(rows.reshape(len(rows), blocks, op.block_size).sum(2), offsets, y)
        if y.size:
            _add_product(op, rows, q, scales, y)


def _filled(rows: Array, columns: int) -> Array:
    """The rows with zeros up to whole blocks."""
    if rows.shape[1] == columns:
        return rows
    filled = np.zeros((len(rows), columns), rows.dtype)
    filled[:, : rows.shape[1]] = rows
    return filled


def _add_product(op: "MatMulBlocks", rows: Array, q: Array, scales: Array, y: Array) -> None:
    size, per_block = op.block_size, op.packed_rows
    blocks = rows.reshape(len(rows), -1, size).swapaxes(0, 1)
    for first, last, left, right in _tiles(len(rows), size, *scales.shape):
        packed = q[first * per_block : last * per_block, left:right]
        weights = _unpack(packed.reshape(last - first, per_block, right - left), op.bits)
        scale = scales[first:last, None, left:right]
        if len(rows) <= _FEW or (len(scales) == 1 and len(rows) < size):
            sums = np.matmul(blocks[first:last], weights)
            sums *= scale
            y[:, left:right] += np.add.reduce(sums, 0)
        else:
            weights *= scale
            y[:, left:right] += rows[:, first * size : last * size] @ weights.reshape(-1, right - left)


def _tiles(rows: int, size: int, blocks: int, columns: int) -> Iterator[tuple[int, int, int, int]]:
    """First and last block, first and last column of each part. For one row long columns, for many all blocks at once."""
    width = min(columns, max(64, _LONG_TILE // size) if rows <= _FEW else max(256, _TILE // max(1, blocks * size)))
    height = max(1, _LONG_TILE // (size * width)) if rows <= _FEW else blocks
    for left in range(0, columns, width):
        for first in range(0, blocks, height):
            yield first, min(first + height, blocks), left, min(left + width, columns)


class _Scratch(threading.local):
    """The unpacked part of each thread: one for all nodes, requests and models."""

    numbers: Array = np.empty(0, np.float32)
    bytes: Array = np.empty(0, np.uint8)


_scratch = _Scratch()


def _unpack(packed: Array, bits: int) -> Array:
    """Blocks [blocks, bytes, columns] as float32 [blocks, rows, columns], in memory that the next call overwrites."""
    blocks, height, columns = packed.shape
    size = packed.size * 2 if bits == 4 else packed.size
    if _scratch.numbers.size < size:
        most = max(size, _LONG_TILE)  # at once: what is freed when it grows may stay with the process
        _scratch.numbers, _scratch.bytes = np.empty(most, np.float32), np.empty(-(-most // 2), np.uint8)
    numbers = _scratch.numbers[:size].reshape(blocks, -1, columns)
    if bits > 4:
        np.copyto(numbers, packed)
        return numbers
    nibbles = _scratch.bytes[: packed.size].reshape(packed.shape)
    np.copyto(numbers[:, :height], np.bitwise_and(packed, np.uint8(15), nibbles))
    np.copyto(numbers[:, height:], np.right_shift(packed, np.uint8(4), nibbles))
    return numbers


@dataclass(frozen=True, eq=False)
class MatMulBlocks(AbstractOperator):
    """A [..., K] times a matrix [K, N] that is `q * scale + offset`, with one scale and offset for each column of a block.

    A block is `block_size` rows, the last one filled up. `q` has numbers of `bits` bits [blocks * block_size, N], of 8 int8 or
    uint8, of 16 float16 or bfloat16; of 4 bits those from 0 to 15, two to a byte [blocks * block_size / 2, N], the first half of
    a block's rows in the low bits. `scales` and `offsets` are float32[blocks, N]. Sums are in float32; Y has the type of A.
    With `activation_bits` 8 a device may round A to int8, with a scale for each block of a row, or both factors to bfloat16,
    which errs less; 0: it may not.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "MatMulBlocks"
    stem: ClassVar[str] = "mat_mul_blocks"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"), Port("q"), Port("scales"), Port("offsets", optional=True))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("bits", "block_size", "activation_bits")))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)
    kernels: ClassVar[tuple[KernelSource, ...]] = (PackedRows(), Unpacked())

    bits: int
    block_size: int
    activation_bits: int = 0

    def __post_init__(self) -> None:
        if self.activation_bits not in (0, 8):
            raise OperatorError(f"activation_bits {self.activation_bits}; accepted: 0 or 8")
        if self.bits not in _KINDS or self.block_size < 2 or self.block_size % 2:
            raise OperatorError(f"bits {self.bits}, block_size {self.block_size}; accepted: 4, 8 or 16, an even number")

    @property
    def packed_rows(self) -> int:
        """The rows of a block in `q`."""
        return self.block_size // 2 if self.bits == 4 else self.block_size

    def has_machine_code(self, a: TensorType, columns: int) -> bool:
        """Whether `PackedRows` multiplies rows `a` by a matrix with so many columns, here on this processor."""
        return takes(self, a, columns)

    def infer(self, a: TensorType, q: TensorType, scales: TensorType, offsets: TensorType | None = None) -> TensorType:
        """A with N as its last dimension."""
        if not a.rank or scales.rank != 2 or a.dtype not in _FLOATS:
            raise ShapeError(f"A is {a}, scales are {scales}; accepted: float32[..., K] or of halves, float32[blocks, N]")
        blocks, n = scales.dims
        height, kinds = blocks * self.packed_rows, _KINDS[self.bits]
        if -(-a.dims[-1] // self.block_size) != blocks or q.dims != (height, n) or q.dtype not in kinds:
            raise ShapeError(f"q is {q} for A {a} and scales {scales}; accepted: {kinds[0]}[{height}, {n}]")
        if scales.dtype is not DType.FLOAT32 or (offsets is not None and offsets != scales):
            raise ShapeError(f"scales are {scales}, offsets {offsets}; accepted: both float32[{blocks}, {n}]")
        return a.with_shape((*a.dims[:-1], n))

    def reference(self, a: Array, q: Array, scales: Array, offsets: Array | None = None) -> Array:
        """Block by block in float32."""
        size, height, dtype, a = self.block_size, self.packed_rows, a.dtype, a.astype(np.float32)
        y = np.zeros((*a.shape[:-1], scales.shape[1]), np.float32)
        for block, scale in enumerate(scales):
            rows = q[block * height : (block + 1) * height]
            numbers = np.concatenate((rows & 15, rows >> 4)) if self.bits == 4 else rows
            weights = numbers.astype(np.float32) * scale + (0 if offsets is None else offsets[block])
            part = a[..., block * size : (block + 1) * size]
            y += part @ weights[: part.shape[-1]]
        return y.astype(dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """Two for each number of the matrix and row of A."""
        assert inputs[0] is not None
        return 2 * outputs[0].size * inputs[0].dims[-1]


@dataclass(frozen=True)
class BlockMatrix:
    """The constants of a MatMulBlocks."""

    bits: int
    block_size: int
    q: Array
    scales: Array
    offsets: Array | None = None

    @property
    def arrays(self) -> list[Array]:
        """q, scales and, if there are any, offsets."""
        return [array for array in (self.q, self.scales, self.offsets) if array is not None]

    @staticmethod
    def of_nibbles(numbers: Array, block_size: int, scales: Array, offsets: Array | None) -> "BlockMatrix":
        """From numbers [K, N] of 0 to 15, with K whole blocks."""
        halves = numbers.reshape(-1, 2, block_size // 2, numbers.shape[1])
        packed = (halves[:, 0] | (halves[:, 1] << np.uint8(4))).reshape(-1, numbers.shape[1])
        return BlockMatrix(4, block_size, packed, scales, offsets)

    @staticmethod
    def once(sources: Sequence[Array], key: Hashable, make: "Callable[[], BlockMatrix]") -> "BlockMatrix":
        """`make()`, or what it made before for the same key and memory of `sources`, as long as a plan uses that.

        So all plans of a model, for whatever shapes, share one matrix. Its arrays are in one block: see `block_of`.
        """

        def made() -> tuple[tuple[int, int], list[Array]]:
            matrix = make()
            return (matrix.bits, matrix.block_size), matrix.arrays

        (bits, size), arrays = once(sources, key, made)
        return BlockMatrix(bits, size, *arrays)

    def times(self, g: GraphBuilder, a: str, activation_bits: int = 0) -> str:
        """Add the node of A times this matrix."""
        names = [g.constant(array, name=name) for array, name in zip(self.arrays, ("q", "scales", "offsets"), strict=False)]
        return g.node(MatMulBlocks(self.bits, self.block_size, activation_bits), a, *names)
