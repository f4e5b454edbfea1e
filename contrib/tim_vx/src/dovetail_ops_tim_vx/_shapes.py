"""Checks of input shapes that name the input."""

from collections.abc import Sequence
from typing import Any

from dovetail.op import ShapeError, TensorType

__all__ = ["check_rank", "check_shapes"]


def check_rank(name: str, given: TensorType, dims: Sequence[Any]) -> tuple[int, ...]:
    """The shape of input `name`. Raises `ShapeError` unless it has as many dimensions as `dims` names."""
    if given.rank != len(dims):
        raise ShapeError(f"input {name!r} is {given}; accepted: [{', '.join(dims)}]")
    return given.dims


def check_shapes(*wanted: tuple[str, TensorType | None, tuple[int, ...]]) -> None:
    """Raise `ShapeError` unless every input that is present has the shape wanted: (name, type, shape) each."""
    for name, given, dims in wanted:
        if given is not None and given.dims != dims:
            raise ShapeError(f"input {name!r} is {given}; accepted: shape {list(dims)}, to fit the other inputs")
