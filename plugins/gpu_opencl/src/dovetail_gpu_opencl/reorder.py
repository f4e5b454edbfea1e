"""Converts constants to the memory layout that the plan chose."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import PLAIN, TensorType

__all__ = ["in_layout"]


def in_layout(array: NDArray[Any], tensor: TensorType) -> NDArray[Any]:
    """The constant with its axes in the order of the layout of `tensor`; the same object for the plain layout."""
    return array if tensor.layout == PLAIN else np.ascontiguousarray(array.transpose(tensor.order))
