"""Shared by operators on sequences."""

from dovetail.op import OperatorError
from dovetail_ops_onnx._types import Array

__all__ = ["position_in"]


def position_in(length: int, position: Array, past: int = 0) -> int:
    """The position counted from the front; `past` is how far behind the last element it may be. Raises `OperatorError`."""
    if position.size != 1:
        raise OperatorError(f"position has {position.size} elements; accepted: one")
    at = int(position.reshape(()))
    if not -length <= at < length + past:
        accepted = f"{-length} to {length + past - 1}" if length + past else "none, because the sequence is empty"
        raise OperatorError(f"position is {at} in a sequence of {length}; accepted: {accepted}")
    return at + length if at < 0 else at
