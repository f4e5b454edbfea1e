"""Flattening at an axis, and unidirectional broadcasting."""

import math

from dovetail.errors import ShapeError


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
