"""Constants in the memory layout that the plan wants."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import PLAIN, TensorType

__all__ = ["laid_out"]


def laid_out(array: NDArray[Any], tensor: TensorType) -> NDArray[Any]:
    """A constant with the dimensions of `tensor` as it lies in memory; the same object if that is how it lies already."""
    return array if tensor.layout == PLAIN else np.ascontiguousarray(array.transpose(tensor.order))
