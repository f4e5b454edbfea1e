"""Operators on tensors as .gguf files hold them: domain `ggml`, which only models of this package have."""

import itertools
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.hookspecs import hookimpl
from dovetail.op import DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType
from dovetail_frontend_gguf.blocks import Blocks
from dovetail_frontend_gguf.container import release
from dovetail_frontend_gguf.formats import FORMATS, Format
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix
from dovetail_ops_onnx.mat_mul_rows import MatMulRows, RowFormat
from dovetail_ops_onnx.take_rows import TakeRows

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry
    from dovetail.testing import Case

__all__ = ["GetRows", "MulMat", "dovetail_api", "dovetail_register_ops"]

Array = NDArray[Any]

_BY_NAME = {found.name: found for found in FORMATS.values()}

_SINGLE, _MOST_SINGLE = itertools.count(1), 16
"""Single rows that were read, and how many are before their part of the file is given back: to map one again takes 45 us."""


class _OnRows(Operator):
    """An operator on rows of bytes in one of the formats, named by `type`."""

    domain: ClassVar[str] = "ggml"
    type: str

    def __post_init__(self) -> None:
        if self.type not in _BY_NAME:
            raise OperatorError(f"attribute 'type' is {self.type!r}; accepted: {', '.join(_BY_NAME)}")

    @property
    def format(self) -> Format:
        """The format."""
        return _BY_NAME[self.type]

    def columns(self, rows: TensorType) -> int:
        """The elements of a row. Raises `ShapeError` for bytes that are not whole blocks."""
        if rows.rank != 2 or rows.dims[1] % self.format.nbytes:
            raise ShapeError(f"input 'W' is {rows}; accepted: [rows, a multiple of {self.format.nbytes} bytes] for {self.type}")
        return rows.dims[1] // self.format.nbytes * self.format.elements


class MulMat(_OnRows):
    """A [..., K] times the transpose of the constant W, whose N rows of K elements are bytes of the format `type`."""

    inputs = ("A: float32", "W: uint8")
    outputs = ("Y: float32",)

    def infer(self, A: TensorType, W: TensorType) -> TensorType:
        """A with N as its last dimension."""
        if not A.rank or A.dims[-1] != self.columns(W):
            raise ShapeError(f"input 'A' is {A}; accepted: [..., {self.columns(W)}], for W {W}")
        if W.value is None:
            raise OperatorError("input 'W' is not known while planning; accepted: a constant")
        return A.with_shape((*A.dims[:-1], W.dims[0]))

    def compose(self, g: GraphBuilder, a: str, w: str) -> str:
        """MatMulRows; of F32 MatMul."""
        given = g.type_of(w)
        assert given is not None
        if self.format.name == "F32":
            assert given.value is not None
            return str(g.node(MatMul(), a, g.constant(self.format.read(given.value).numbers.T, name="weights")))
        return str(g.node(MatMulRows(_row_format(self.format, given)), a, w))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """One for each format, by numbers decoded one by one."""
        from dovetail_frontend_gguf.cases import mul_mat  # here, because only tests need cases

        return mul_mat(rng)


class GetRows(_OnRows):
    """Rows of W [rows, bytes of a row] in float32, by their numbers: [..., K]."""

    inputs = ("W: uint8", "indices: int64")
    outputs = ("Y: float32",)

    def infer(self, W: TensorType, indices: TensorType) -> TensorType:
        """The shape of the indices and the elements of a row."""
        return TensorType(DType.FLOAT32, (*indices.dims, self.columns(W)))

    def compose(self, g: GraphBuilder, w: str, indices: str) -> str:
        """TakeRows, which raises `OperatorError` for a number that is not that of a row."""
        given = g.type_of(w)
        assert given is not None
        return str(g.node(TakeRows(_row_format(self.format, given)), w, indices))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """One for each format, by numbers decoded one by one."""
        from dovetail_frontend_gguf.cases import get_rows  # here, because only tests need cases

        return get_rows(rng)


def _row_format(kind: Format, rows: TensorType) -> RowFormat:
    """The format of such rows as MatMulRows and TakeRows take it."""
    one = _matrix(kind.read(np.zeros((1, rows.dims[1]), np.uint8)))
    columns = rows.dims[1] // kind.nbytes * kind.elements
    form = one.bits, one.block_size, DType.of(one.q.dtype), one.offsets is not None
    return RowFormat(f"ggml {kind.name}", columns, *form, partial(_read, kind), partial(_floats, kind))


def _read(kind: Format, rows: Array) -> BlockMatrix:
    """The rows as columns; their part of the file is not needed again."""
    made = _matrix(kind.read(rows))
    release(rows)
    return made


def _floats(kind: Format, rows: Array, chosen: Array) -> Array:
    found = kind.read(rows[chosen]).floats()
    if len(chosen) > 1 or not next(_SINGLE) % _MOST_SINGLE:
        release(rows)
    return found


def _matrix(blocks: Blocks) -> BlockMatrix:
    """The rows as columns."""
    scales = np.ascontiguousarray(blocks.scales.T)
    offsets = None if blocks.offsets is None else np.ascontiguousarray(blocks.offsets.T)
    if blocks.bits == 4:
        return BlockMatrix.of_nibbles(blocks.numbers.T, blocks.size, scales, offsets)
    numbers, size = blocks.numbers.T, blocks.size + blocks.size % 2
    q = np.zeros((len(scales) * size, numbers.shape[1]), numbers.dtype)
    q[: len(numbers)] = numbers
    return BlockMatrix(blocks.bits, size, q, scales, offsets)


dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators."""
    registry.add(GetRows)
    registry.add(MulMat)
