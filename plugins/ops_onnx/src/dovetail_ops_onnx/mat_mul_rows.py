"""MatMul with a matrix whose rows are bytes in a format of a file. Compositions have it; it is not in the standard."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, DType, GraphBuilder, OperatorError, Port, ShapeError, TensorType
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix

__all__ = ["MatMulRows", "RowFormat"]

Array = NDArray[Any]

_PART = 256
"""Rows that the reference unpacks at a time."""


@dataclass(frozen=True)
class RowFormat:
    """How bytes hold rows of `columns` numbers.

    `matrix(rows)` is the BlockMatrix whose columns they are, `floats(rows, indices)` those rows in float32 [indices, columns].
    The matrix's `bits` and `block_size`, the type of its numbers and whether it has offsets are the same for all rows. `name` is
    the format's: two of one name and as many columns are equal.
    """

    name: str
    columns: int
    bits: int
    block_size: int
    dtype: DType
    has_offsets: bool
    matrix: Callable[[Array], BlockMatrix]
    floats: Callable[[Array, Array], Array]

    def whole(self, rows: Array) -> BlockMatrix:
        """All rows; the same arrays for all plans of a model."""
        return BlockMatrix.once([rows], ("rows", self.name), lambda: self.matrix(rows))


@dataclass(frozen=True, eq=False)
class MatMulRows(AbstractOperator):
    """A [..., K] times the transpose of the constant W, N rows of bytes that hold K numbers each.

    Devices that have their own order for packed weights take the rows in parts, so that no other copy of the matrix is made.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "MatMulRows"
    stem: ClassVar[str] = "mat_mul_rows"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"), Port("W"))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("format",)))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    format: RowFormat

    @property
    def bits(self) -> int:
        """As in MatMulBlocks."""
        return self.format.bits

    @property
    def block_size(self) -> int:
        """As in MatMulBlocks."""
        return self.format.block_size

    @property
    def packed_rows(self) -> int:
        """As in MatMulBlocks."""
        return self.block_size // 2 if self.bits == 4 else self.block_size

    def infer(self, a: TensorType, w: TensorType) -> TensorType:
        """A with N as its last dimension."""
        if not a.rank or a.dims[-1] != self.format.columns or a.dtype is not DType.FLOAT32 or w.rank != 2:
            raise ShapeError(f"A is {a}, W {w}; accepted: float32[..., {self.format.columns}], uint8[rows, bytes of a row]")
        if w.value is None:
            raise OperatorError("input 'W' is not known while planning; accepted: a constant")
        return a.with_shape((*a.dims[:-1], w.dims[0]))

    def compose(self, g: GraphBuilder, a: str, w: str) -> str:
        """MatMulBlocks, on the blocks in another order."""
        given = g.given(w)
        rows = given.value
        assert rows is not None
        return self.format.whole(rows).times(g, a)

    def reference(self, a: Array, w: Array) -> Array:
        """Part by part, in float32."""
        y = np.empty((*a.shape[:-1], len(w)), np.float32)
        for first in range(0, len(w), _PART):
            rows = np.arange(first, min(first + _PART, len(w)))
            y[..., rows] = a @ self.format.floats(w, rows).T
        return y

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Two for each number of the matrix and row of A."""
        return 2 * outputs[0].size * self.format.columns
