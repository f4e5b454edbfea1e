"""Shared by the operators: nodes that move data, with their sizes as constants, and numbers of few bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, Operator
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["cast", "cut", "ints", "reshape", "transpose", "unpacked"]


def ints(g: GraphBuilder, values: Sequence[int]) -> str:
    """A constant vector of int64."""
    return g.constant(list(values), DType.INT64)


def reshape(g: GraphBuilder, x: str, shape: Sequence[int]) -> str:
    """x in another shape; 0 is a size of 0."""
    return node(g, Reshape(allowzero=True), x, ints(g, shape))


def transpose(g: GraphBuilder, x: str, perm: Sequence[int]) -> str:
    """x with its axes in another order."""
    return node(g, Transpose(perm=tuple(perm)), x)


def cut(g: GraphBuilder, x: str, axis: int, start: int, stop: int) -> str:
    """The elements of an axis from start to stop."""
    return node(g, Slice(), x, *(ints(g, [number]) for number in (start, stop, axis)))


def cast(g: GraphBuilder, x: str, source: DType, target: DType) -> str:
    """x in another type."""
    return x if source is target else node(g, Cast(to=target), x)


def node(g: GraphBuilder, op: Operator, *inputs: str) -> str:
    """A node with one output."""
    return str(g.node(op, *inputs, outputs=1))


def unpacked(rows: NDArray[Any], bits: int) -> NDArray[Any]:
    """Rows of bytes as numbers of `bits` bits, the first of a byte in its lowest bits."""
    parts = 8 // bits
    y = np.empty((rows.shape[0], rows.shape[1] * parts), np.uint8)
    for part in range(parts):
        np.right_shift(rows, np.uint8(part * bits), y[:, part::parts])
    return np.bitwise_and(y, np.uint8(2**bits - 1), y)
