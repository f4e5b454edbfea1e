"""Matrices in blocks in the order of blocks_packed.cl, for CPUs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.memory import aligned_empty
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks

__all__ = ["has_offsets", "matrix_defines", "operator", "packed_blocks", "parameter_type"]

Array = NDArray[Any]


def operator(node: TypedNode) -> MatMulBlocks:
    """The node's operator."""
    assert isinstance(node.op, MatMulBlocks)
    return node.op


def matrix_defines(node: TypedNode) -> dict[str, object]:
    """The macros by which kernel files read the matrix of a node."""
    op, dtype = operator(node), node.given(1).dtype
    return {
        "BITS": op.bits,
        "SIZE": op.block_size,
        "Q": {DType.UINT8: "uchar", DType.INT8: "char"}.get(dtype, "ushort"),
        "WHOLE": dtype.is_integer,
        "Q_BFLOAT16": dtype is DType.BFLOAT16,
        "HAS_OFFSETS": has_offsets(node),
    }


def has_offsets(node: TypedNode) -> bool:
    """Whether the node has the input `offsets`."""
    return len(node.inputs) > 3 and node.inputs[3] is not None


def parameter_type(parts: Sequence[TypedNode]) -> np.dtype[Any]:
    """The type in which the scales and offsets of all these products are packed: halves where they are exact."""
    exact = all(_fits_half(array) for part in parts for array in _arrays(part)[1:])
    return np.dtype(np.float16 if exact else np.float32)


def packed_blocks(node: TypedNode, columns: int, parameters: np.dtype[Any], shared: PackedConstants) -> Array:
    """The matrix of a MatMulBlocks, whose inputs are constants: bytes [tiles of so many columns, blocks, bytes of a block]."""
    q, *rest = _arrays(node)
    op = operator(node)
    order = ("blocks", op.bits, op.block_size, columns, parameters, tuple(array.ctypes.data for array in rest))
    return shared.get(q, order, lambda: _packed(op.packed_rows, q, [array.astype(parameters) for array in rest], columns))


def _arrays(node: TypedNode) -> list[Array]:
    """The matrix, its scales and offsets."""
    return [array for t in node.inputs[1:4] if t is not None and (array := t.value) is not None]


def _fits_half(array: Array) -> bool:
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float16)
    return bool(np.array_equal(narrow, array) and np.isfinite(narrow).all())


def _packed(height: int, q: Array, parameters: Sequence[Array], columns: int) -> Array:
    blocks, n = parameters[0].shape
    parts = [*(array[:, None] for array in parameters), q.reshape(blocks, height, n)]
    tiles = ceil_div(n, columns)
    sizes = [part.shape[1] * columns * part.itemsize for part in parts]
    found = aligned_empty((tiles, blocks, sum(sizes)), np.uint8)
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        padded = part if n == tiles * columns else np.pad(part, ((0, 0), (0, 0), (0, tiles * columns - n)))
        place = found[:, :, start : start + size].view(part.dtype).reshape(tiles, blocks, part.shape[1], columns)
        place[...] = padded.reshape(blocks, part.shape[1], tiles, columns).transpose(2, 0, 1, 3)
        start += size
    return found
