"""Sliding windows over an array, as a view, for the references of convolution and pooling."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dovetail.errors import ShapeError
from dovetail.graph import TensorType
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.spatial import ConvGeometry


def windows(x: Array, geometry: ConvGeometry, fill: Any) -> Array:
    """x [N, C, *input] -> a read-only view [N, C, *output, *kernel]; elements outside the input are `fill`."""
    g = geometry
    if not g.is_dense:
        pads = [(0, 0), (0, 0), *zip(g.pads_begin, g.overhang, strict=True)]
        x = np.pad(x, pads, constant_values=fill)
    spatial = x.strides[2:]
    steps = tuple(s * n for s, n in zip(g.strides, spatial, strict=True))
    gaps = tuple(d * n for d, n in zip(g.dilations, spatial, strict=True))
    shape = (*x.shape[:2], *g.output, *g.kernel)
    return as_strided(x, shape, (*x.strides[:2], *steps, *gaps), writeable=False)


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
