"""Shared by the scatter cases: one update of one element."""

from typing import Any

__all__ = ["REDUCTIONS", "written"]

REDUCTIONS = ("none", "add", "mul", "max", "min")


def written(old: Any, new: Any, reduction: str) -> Any:
    """The element after an update."""
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    if reduction == "none":
        return new
    return old if (old > new) == (reduction == "max") else new
