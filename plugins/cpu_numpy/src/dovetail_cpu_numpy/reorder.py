"""Converts between an array in memory, whose axes follow its layout, and the operator's order of dimensions."""

import numpy as np

from dovetail.device import PLAIN, TensorType
from dovetail_cpu_numpy.launch import Array

__all__ = ["in_layout", "logical"]


def logical(array: Array, tensor: TensorType) -> Array:
    """A view, with the dimensions of `tensor`, of an array whose axes follow the layout."""
    return array if tensor.layout == PLAIN else array.transpose(np.argsort(tensor.order))


def in_layout(array: Array, tensor: TensorType) -> Array:
    """The constant with its axes in the order of the layout of `tensor`: C-contiguous and read-only, copied where needed."""
    found = np.asarray(array if tensor.layout == PLAIN else array.transpose(tensor.order), order="C")
    found.flags.writeable = False
    return found
