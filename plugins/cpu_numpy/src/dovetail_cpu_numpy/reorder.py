"""Memory layouts: arrays lie as their layout says, and here are views of them in the order of the operator's dimensions."""

import numpy as np

from dovetail.device import PLAIN, TensorType
from dovetail_cpu_numpy.launch import Array

__all__ = ["laid_out", "logical"]


def logical(array: Array, tensor: TensorType) -> Array:
    """A view of an array as it lies in memory with the dimensions of `tensor`."""
    return array if tensor.layout == PLAIN else array.transpose(np.argsort(tensor.order))


def laid_out(array: Array, tensor: TensorType) -> Array:
    """A constant with the dimensions of `tensor` as it is to lie in memory: C-contiguous and read-only, copied if need be."""
    found = np.asarray(array if tensor.layout == PLAIN else array.transpose(tensor.order), order="C")
    found.flags.writeable = False
    return found
