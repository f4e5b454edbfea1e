"""Shared by operators that gather and scatter: indices along an axis, or of several axes, as places in a flattened array."""

import math
from collections.abc import Sequence

import numpy as np

from dovetail_ops_onnx._shapes import check_indices
from dovetail_ops_onnx._types import Array

__all__ = ["places_along", "places_of", "rows_along"]

_MANY = 1 << 11
"""Elements from which on a look for whole rows takes less time than it saves."""


def places_of(indices: Array, dims: Sequence[int], first: int = 0) -> Array:
    """A vector of places in a flattened array of shape `dims`, whose coordinates are in the last axis of `indices`.

    Raises `OperatorError` for a coordinate out of range, which names the axes from `first` on.
    """
    own = tuple(indices.reshape(math.prod(indices.shape[:-1]), len(dims)).T)
    try:
        return np.ravel_multi_index(own, dims)
    except ValueError:
        for axis, bound in enumerate(dims):
            check_indices(indices[..., axis], bound, first + axis)
        return np.ravel_multi_index(own, dims, mode="wrap")


def places_along(indices: Array, axis: int, dims: tuple[int, ...]) -> Array:
    """Where an array of shape `dims` flattened has the elements that are at `indices` along `axis`, else at their own places."""
    stride, counted = math.prod(dims[axis + 1 :]), indices
    if indices.size and np.minimum.reduce(indices, axis=None) < 0:
        counted = np.where(indices < 0, indices + dims[axis], indices)
    own: Array = np.zeros((), np.intp)
    for at, count in enumerate(indices.shape):
        if at != axis and count > 1:
            places = np.arange(count) * math.prod(dims[at + 1 :])
            own = own + places.reshape(-1, *(1,) * (len(dims) - at - 1))
    if stride == 1:
        return np.asarray(own + counted)
    found: Array = counted * np.intp(stride)
    found += own
    return found


def rows_along(indices: Array, axis: int, dims: tuple[int, ...]) -> Array | None:
    """A vector of places as by `places_along` of whole rows, which are all that is behind the axis; None where these differ.

    Exporters expand one index for each row, as of boxes, tokens and the ends of edges.
    """
    size = math.prod(dims[axis + 1 :])
    if size < 2 or indices.size < _MANY or indices.shape[axis + 1 :] != dims[axis + 1 :]:
        return None
    rows = indices.reshape(-1, size)
    if rows.item(0) != rows.item(1) or not (rows == rows[:, :1]).all():
        return None
    return places_along(rows[:, 0].reshape(indices.shape[: axis + 1]), axis, dims[: axis + 1]).reshape(-1)
