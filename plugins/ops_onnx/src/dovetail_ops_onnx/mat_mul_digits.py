"""The digits of rows times a matrix of 4 or 8 bits in blocks. Only a graph pass makes it; it is not in the standard."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, DType, Port, ShapeError, TensorType

__all__ = ["MatMulDigits"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class MatMulDigits(AbstractOperator):
    """MatMulBlocks of rows that RowDigits took apart: digits times `q - centre`, block by block, times factors and scales.

    `digits`, `factors` and `sums` are RowDigits' with `group`, the others MatMulBlocks' with `bits` and `block_size`. The sum of
    each block is exact; with `offsets`, sums times offsets are added.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "MatMulDigits"
    stem: ClassVar[str] = "mat_mul_digits"
    inputs: ClassVar[tuple[Port, ...]] = (
        Port("digits"),
        Port("factors"),
        Port("q"),
        Port("scales"),
        Port("sums", optional=True),
        Port("offsets", optional=True),
    )
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("bits", "block_size", "group", "centre")))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    bits: int
    block_size: int
    group: int = 1
    centre: int = 0

    def infer(self, digits: TensorType, factors: TensorType, q: TensorType, *rest: TensorType | None) -> TensorType:
        """The dimensions of factors with N as the last one."""
        scales = rest[0]
        assert scales is not None
        blocks, n = scales.dims
        if digits.dtype is not DType.INT8 or digits.rank != 3 or q.dims[1] != n or digits.dims[0] != -(-blocks // self.group):
            raise ShapeError(f"digits are {digits}, q is {q} for scales {scales}; accepted: {-(-blocks // self.group)} batches")
        return factors.with_shape((*factors.dims[:-1], n))

    def weights(self, q: Array) -> Array:
        """`q - centre` as int8 [batches, group * block_size, N], with zeros after the last block."""
        n = q.shape[1]
        if self.bits == 4:
            halves = q.reshape(-1, self.block_size // 2, n)
            q = np.concatenate((halves & np.uint8(15), halves >> np.uint8(4)), 1).reshape(-1, n)
        numbers = (q.view(np.uint8) - np.uint8(self.centre)).view(np.int8)  # wraps
        width = self.group * self.block_size
        missing = -len(numbers) % width
        if missing:
            numbers = np.concatenate((numbers, np.zeros((missing, n), np.int8)))
        return numbers.reshape(-1, width, n)

    def reference(
        self, digits: Array, factors: Array, q: Array, scales: Array, sums: Array | None = None, offsets: Array | None = None
    ) -> Array:
        """In float32, but for the sums of each block."""
        products = np.matmul(digits.astype(np.int32), self.weights(q).astype(np.int32))  # [batches, group * count * rows, N]
        (blocks, n), rows = scales.shape, math.prod(factors.shape[:-1])
        count = digits.shape[1] // (self.group * rows)
        products = products.reshape(-1, count * rows, n)[:blocks].astype(np.float32) * scales[:, None]
        of_rows = products.reshape(-1, rows, n).swapaxes(0, 1)
        y: Array = (factors.reshape(rows, 1, -1)[:, :, : blocks * count] @ of_rows)[:, 0]
        if offsets is not None and sums is not None:
            y += sums.reshape(rows, -1)[:, :blocks] @ offsets
        return y.reshape(*factors.shape[:-1], n)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Two for each number of the matrix."""
        assert inputs[0] is not None
        return 2 * outputs[0].size * inputs[0].dims[0] * inputs[0].dims[2]
