"""Matrices in blocks in the order of blocks_packed.cl, for CPUs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.memory import aligned_empty
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks, block_of
from dovetail_ops_onnx.mat_mul_rows import MatMulRows

__all__ = ["Product", "has_offsets", "matrix_defines", "operator", "packed_matrices", "plain_defines", "together"]

Array = NDArray[Any]
Product = MatMulBlocks | MatMulRows

_PART = 1 << 18
"""Numbers of a matrix in rows of bytes that are decoded at a time."""

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def operator(node: TypedNode) -> Product:
    """The node's operator."""
    assert isinstance(node.op, Product)
    return node.op


def matrix_defines(node: TypedNode) -> dict[str, object]:
    """The macros by which kernel files read the matrix of a node."""
    op = operator(node)
    dtype = op.format.dtype if isinstance(op, MatMulRows) else node.given(1).dtype
    return plain_defines(op.bits, op.block_size, dtype, has_offsets(node))


def plain_defines(bits: int, size: int, dtype: DType, offsets: bool) -> dict[str, object]:
    """The same for a matrix of this form."""
    return {
        "BITS": bits,
        "SIZE": size,
        "Q": {DType.UINT8: "uchar", DType.INT8: "char"}.get(dtype, "ushort"),
        "WHOLE": dtype.is_integer,
        "Q_BFLOAT16": dtype is DType.BFLOAT16,
        "HAS_OFFSETS": offsets,
    }


def has_offsets(node: TypedNode) -> bool:
    """Whether numbers have offsets."""
    op = operator(node)
    return op.format.has_offsets if isinstance(op, MatMulRows) else len(node.inputs) > 3 and node.inputs[3] is not None


def together(node: TypedNode) -> Array | None:
    """The bytes that hold q, scales and offsets as blocks_plain.cl has them with TOGETHER; None where they are elsewhere."""
    arrays = [t.value for t in node.inputs[1:4] if t is not None]
    return None if any(array is None for array in arrays) else block_of([array for array in arrays if array is not None])


def packed_matrices(parts: Sequence[TypedNode], columns: int, shared: PackedConstants) -> tuple[list[Array], np.dtype[Any]]:
    """The matrices of products, whose inputs are constants: bytes [tiles of so many columns, blocks, bytes of a block].

    And the type of all their scales and offsets: halves where these are exact.
    """
    try:
        return [_packed(part, columns, _HALF, shared) for part in parts], _HALF
    except _InexactHalves:
        return [_packed(part, columns, _SINGLE, shared) for part in parts], _SINGLE


class _InexactHalves(ValueError):
    """Halves do not hold the scales and offsets of a matrix."""


def _packed(node: TypedNode, columns: int, kind: np.dtype[Any], shared: PackedConstants) -> Array:
    op = operator(node)
    source, *rest = [array for t in node.inputs[1:4] if t is not None and (array := t.value) is not None]
    if isinstance(op, MatMulRows):
        return shared.get(source, ("rows", op.format.name, columns, kind), lambda: _of_rows(op, source, columns, kind))
    if not all(_fits(array, kind) for array in rest):
        raise _InexactHalves
    return shared.get(
        source, ("blocks", op.bits, op.block_size, columns, kind), lambda: _of_blocks(op, source, rest, columns, kind), *rest
    )


def _fits(array: Array, kind: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        narrow = array.astype(kind)
    return kind == array.dtype or bool(np.array_equal(narrow, array) and np.isfinite(narrow).all())


def _of_blocks(op: Product, q: Array, parameters: Sequence[Array], columns: int, kind: np.dtype[Any]) -> Array:
    blocks, n = parameters[0].shape
    found = _empty(op, q.dtype, len(parameters), (ceil_div(n, columns), blocks), columns, kind)
    _fill(found, op.packed_rows, q, [array.astype(kind) for array in parameters], columns)
    return found


def _of_rows(op: MatMulRows, rows: Array, columns: int, kind: np.dtype[Any]) -> Array:
    """Part by part: the rows may be those of a mapped file, which `matrix` gives back."""
    tiles, blocks = ceil_div(len(rows), columns), ceil_div(op.format.columns, op.block_size)
    found = _empty(op, op.format.dtype.numpy, 1 + op.format.has_offsets, (tiles, blocks), columns, kind)
    step = max(1, _PART // (columns * op.format.columns))
    for first in range(0, tiles, step):
        matrix = op.format.matrix(rows[first * columns : (first + step) * columns])
        parameters = [array for array in (matrix.scales, matrix.offsets) if array is not None]
        if not all(_fits(array, kind) for array in parameters):
            raise _InexactHalves
        _fill(found[first : first + step], op.packed_rows, matrix.q, [array.astype(kind) for array in parameters], columns)
    return found


def _empty(op: Product, q: Any, parameters: int, tiles: tuple[int, int], columns: int, kind: np.dtype[Any]) -> Array:
    block = columns * (parameters * kind.itemsize + op.packed_rows * np.dtype(q).itemsize)
    return aligned_empty((*tiles, block), np.uint8)


def _fill(found: Array, height: int, q: Array, parameters: Sequence[Array], columns: int) -> None:
    """Write a matrix, or some columns of it, into the tiles that it needs."""
    blocks, n = parameters[0].shape
    parts = [*(array[:, None] for array in parameters), q.reshape(blocks, height, n)]
    tiles, start = len(found), 0
    for part in parts:
        size = part.shape[1] * columns * part.itemsize
        padded = part if n == tiles * columns else np.pad(part, ((0, 0), (0, 0), (0, tiles * columns - n)))
        place = found[:, :, start : start + size].view(part.dtype).reshape(tiles, blocks, part.shape[1], columns)
        place[...] = padded.reshape(blocks, part.shape[1], tiles, columns).transpose(2, 0, 1, 3)
        start += size
