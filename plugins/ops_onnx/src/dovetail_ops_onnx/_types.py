"""The sets of data types that standard operators accept, in the ONNX standard's groups, and names for long annotations."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.op import FLOATS, INTEGERS, NUMERIC, DType, PostOp, TensorType

__all__ = [
    "ALL",
    "BASIC",
    "BOOL",
    "COMMON",
    "FLOAT6",
    "FLOATS",
    "INDICES",
    "INTEGERS",
    "NUMERIC",
    "SIGNED",
    "Array",
    "Chain",
    "Types",
]

BOOL = frozenset({DType.BOOL})
INDICES = frozenset({DType.INT32, DType.INT64})
SIGNED = FLOATS | {DType.INT8, DType.INT16, DType.INT32, DType.INT64}
COMMON = NUMERIC | BOOL | {DType.STRING}
BASIC = COMMON | {DType.COMPLEX64, DType.COMPLEX128}
FLOAT6 = frozenset({DType.FLOAT6_E2M3, DType.FLOAT6_E3M2})
ALL = frozenset(DType) - FLOAT6

Array = NDArray[Any]
Types = Sequence[TensorType | None]
"""The types of a node's inputs; None for those left out."""
Chain = tuple[PostOp, ...] | None
"""Result of `Operator.post_ops`."""
