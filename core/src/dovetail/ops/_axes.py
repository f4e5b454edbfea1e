"""Axes of operators: range checks with ONNX's rule that negative ones count from the end."""

import math
from collections.abc import Iterable

from dovetail.errors import OperatorError, ShapeError


def normal_axis(axis: int, rank: int, name: str = "axis") -> int:
    """`axis` counted from the front. Raises `OperatorError` when it is not in [-rank, rank - 1]."""
    if not -rank <= axis < rank:
        raise OperatorError(f"{name} is {axis}; accepted for an input of rank {rank}: {-rank} to {rank - 1}")
    return axis % rank


def normal_axes(axes: Iterable[int], rank: int, name: str = "axes") -> tuple[int, ...]:
    """All of `axes` counted from the front, in the order given. Raises `OperatorError` for one out of range or twice."""
    found = tuple(normal_axis(int(axis), rank, name) for axis in axes)
    if len(set(found)) != len(found):
        raise OperatorError(f"{name} {list(found)} name an axis twice")
    return found


def flattened(dims: tuple[int, ...], axis: int) -> tuple[int, int]:
    """The two dimensions of an array of shape `dims` flattened before and from `axis`."""
    return math.prod(dims[:axis]), math.prod(dims[axis:])


def broadcasts_to(dims: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """True when an array of shape `dims` broadcasts to exactly `target` (unidirectional broadcasting)."""
    tail = target[len(target) - len(dims) :]
    return len(dims) <= len(target) and all(d in (1, t) for d, t in zip(dims, tail, strict=True))


def require_broadcast(name: str, dims: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Raise `ShapeError` unless input `name` of shape `dims` broadcasts to `target`."""
    if not broadcasts_to(dims, target):
        raise ShapeError(f"input {name!r} has shape {list(dims)}; accepted: a shape that broadcasts to {list(target)}")
