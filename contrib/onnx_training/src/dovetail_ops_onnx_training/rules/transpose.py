"""The derivative of Transpose."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY with the axes put back."""
    (x,) = inputs
    perm = op.perm if op.perm is not None else tuple(reversed(range(x.rank)))
    return gradients[0].transpose([perm.index(axis) for axis in range(x.rank)])
