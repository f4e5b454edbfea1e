"""The numbers of rows as 8-bit digits, block by block. Only a graph pass makes this operator; it is not in the standard."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, DType, OperatorError, Port, ShapeError, TensorType

__all__ = ["EXACT", "RowDigits"]

Array = NDArray[Any]

EXACT = 4
"""Digits of 8 bits that hold a float32 exactly, but for what is below 2 ^ -30 of the largest number of its block."""


@dataclass(frozen=True, eq=False)
class RowDigits(AbstractOperator):
    """Rows [..., K] of float32 as sums of `digits * factors`.

    Each block of `block_size` numbers becomes `count` blocks of int8, the last one first filled up with zeros. With `EXACT`
    digits, digit i counts 256 ^ i * 2 ^ -30 of a power of two above the largest number of the block. A single digit counts
    1 / 127 of that number, as onnxruntime rounds activations. `digits` are [batches, group * count * rows, group * block_size]:
    `group` blocks side by side, each in its own rows, with zeros in the other columns. `factors` [..., blocks * count] are what
    digits count; those of blocks with NaN or infinity are NaN. `sums` [..., blocks] are those of each block's rounded numbers.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "RowDigits"
    stem: ClassVar[str] = "row_digits"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"),)
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("block_size", "count", "group")))
    outputs: ClassVar[tuple[Port, ...]] = (Port("digits"), Port("factors"), Port("sums", optional=True))

    block_size: int
    count: int = EXACT
    group: int = 1

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.group < 1 or self.count not in (1, EXACT):
            given = f"block_size {self.block_size}, group {self.group}, count {self.count}"
            raise OperatorError(f"{given}; accepted: positive sizes, 1 or {EXACT} digits")

    def batches(self, columns: int) -> int:
        """Groups of blocks in a row of so many columns."""
        return -(-columns // (self.block_size * self.group))

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        """Raises `ShapeError` for other types, and without numbers."""
        if a.dtype is not DType.FLOAT32 or not a.rank or not a.size:
            raise ShapeError(f"A is {a}; accepted: rows of float32")
        batches, lead = self.batches(a.dims[-1]), a.dims[:-1]
        rows = self.group * self.count * math.prod(lead)
        digits = TensorType(DType.INT8, (batches, rows, self.group * self.block_size))
        blocks = batches * self.group
        return digits, a.with_shape((*lead, blocks * self.count)), a.with_shape((*lead, blocks))

    def reference(self, a: Array) -> tuple[Array, Array, Array]:
        """Block by block."""
        batches, lead = self.batches(a.shape[-1]), a.shape[:-1]
        many = math.prod(lead)
        rows = np.zeros((many * batches * self.group, self.block_size), np.float32)
        rows.reshape(many, -1)[:, : a.shape[-1]] = a.reshape(many, -1)
        numbers, factors = self._one_digit(rows) if self.count == 1 else self._all_digits(rows)
        digits = np.zeros((batches, self.group, self.count, many, self.group, self.block_size), np.int8)
        placed = numbers.reshape(many, batches, self.group, self.count, self.block_size).transpose(1, 2, 3, 0, 4)
        for place in range(self.group):
            digits[:, place, :, :, place] = placed[:, place]
        rounded = rows if self.count == EXACT else numbers * factors
        sums = rounded.sum(1, dtype=np.float32).reshape(*lead, -1)
        return digits.reshape(batches, self.group * self.count * many, -1), factors.reshape(*lead, -1), sums

    def _one_digit(self, rows: Array) -> tuple[Array, Array]:
        largest = np.abs(rows).max(1, keepdims=True)
        known = np.isfinite(largest)
        scaled = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=known & (largest > 1e-30))
        digits = np.rint(np.where(known, rows, 0) * scaled).astype(np.int8)
        return digits, np.where(known, largest * np.float32(1 / 127), np.float32(np.nan))

    def _all_digits(self, rows: Array) -> tuple[Array, Array]:
        largest = np.abs(rows).max(1, keepdims=True)
        known = np.isfinite(largest)
        exponents = np.frexp(np.where(known, largest, 0))[1]
        whole = np.rint(np.ldexp(np.where(known, rows, 0), 30 - exponents)).astype(np.int64)
        digits = [((whole + 128) >> np.int64(0)) & 255]
        for _ in range(EXACT - 1):
            whole = (whole + 128) >> 8
            digits.append((whole + 128) & 255)
        units = np.ldexp(np.float32(1), exponents - 30 + 8 * np.arange(EXACT)).astype(np.float32)
        return (np.stack(digits, 1) - 128).astype(np.int8), np.where(known, units, np.float32(np.nan))
