"""Sliding windows over an array, as a view, for the references of convolution and pooling."""

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dovetail.errors import ShapeError
from dovetail.graph import TensorType
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.spatial import ConvGeometry

_SPARSE = 1 << 22
"""Elements of a padded array up to which it is made, however few windows read it."""


def windows(x: Array, geometry: ConvGeometry, fill: Any) -> Array:
    """x [N, C, *input] -> a read-only view [N, C, *output, *kernel]; elements outside the input are `fill`."""
    g = geometry
    if not g.is_dense:
        pads = [(0, 0), (0, 0), *zip(g.pads_begin, g.overhang, strict=True)]
        padded = math.prod(n + sum(pad) for n, pad in zip(x.shape, pads, strict=True))
        if x.size and padded > max(_SPARSE, 4 * x.size):
            return _gathered(x, g, fill)
        x = np.pad(x, pads, constant_values=fill)
    spatial = x.strides[2:]
    # The step to the next of one element counts for nothing, and may be beyond 64 bits.
    steps = tuple(s * n if many > 1 else 0 for s, n, many in zip(g.strides, spatial, g.output, strict=True))
    gaps = tuple(d * n if many > 1 else 0 for d, n, many in zip(g.dilations, spatial, g.kernel, strict=True))
    shape = (*x.shape[:2], *g.output, *g.kernel)
    return as_strided(x, shape, (*x.strides[:2], *steps, *gaps), writeable=False)


def _gathered(x: Array, g: ConvGeometry, fill: Any) -> Array:
    """The windows without the padded array, for strides as large as the padding."""
    outside, axes = np.zeros((), bool), range(2, 2 + 2 * len(g.output), 2)
    for axis, out, kernel, stride, gap, pad in zip(axes, g.output, g.kernel, g.strides, g.dilations, g.pads_begin, strict=True):
        size = x.shape[axis]
        at = np.arange(out).astype(object)[:, None] * stride + np.arange(kernel).astype(object) * gap - pad
        beyond = ((at < 0) | (at >= size)).astype(bool)
        x = x.take(np.where(beyond, 0, at).astype(np.int64), axis)
        outside = outside[..., None, None] | beyond
    found = np.where(outside, np.asarray(fill, x.dtype), x)
    return found.transpose(0, 1, *axes, *(axis + 1 for axis in axes))


def spatial_dims(X: TensorType) -> tuple[int, ...]:
    """The spatial dimensions of X [N, C, D1, ...]. Raises `ShapeError` when there are none."""
    if X.rank < 3:
        raise ShapeError(f"the input is {X}; accepted: rank 3 or more, [N, C, D1, ...]")
    return X.dims[2:]


def global_shape(X: TensorType) -> tuple[int, ...]:
    """[N, C, 1, ...] of the rank of X. Raises `ShapeError` for a rank below 2."""
    if X.rank < 2:
        raise ShapeError(f"the input is {X}; accepted: rank 2 or more, [N, C, D1, ...]")
    return (*X.dims[:2], *(1,) * (X.rank - 2))
