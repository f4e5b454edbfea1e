"""The axes of Softmax and LogSoftmax, which are one axis, or all from one on before operator set 13."""

from typing import Any

__all__ = ["softmax_axes"]


def softmax_axes(op: Any, rank: int) -> list[int]:
    """The axes over which the operator sums."""
    axis = op.axis % max(1, rank)
    return [axis] if op.since >= 13 else list(range(axis, rank))
