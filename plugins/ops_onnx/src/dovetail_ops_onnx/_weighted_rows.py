"""Weighted sums of elements of an image at given places, all channels at once: GridSample, DeformConv, RoiAlign."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx import _gathered_rows
from dovetail_ops_onnx._types import Array

__all__ = ["Taps", "adds_up_rows", "channels_last", "joined", "weighted_planes", "weighted_rows"]

Taps = tuple[Array, Array]
"""The elements [taps, places] of which something is made at each place, and their weights [taps, places]."""

_PART = 1 << 18
"""Elements that are gathered at once: they stay in the cache."""
_PLACES = 1 << 10
"""Places that are gathered at once from every plane: more planes than the cache holds are read again for each part. 3,136
places of 256 planes of 56 x 56 take 3.2 ms, and 5.0 with 256 at once.
"""
_FEW = 8
"""Below as many channels each is gathered on its own."""
_SET = 1 << 12
"""Bytes after which addresses fall on the same lines of a processor's first cache, of which it keeps 8: 32 planes of 64 x 64 are
turned in 257 us at once, in 76 by 8, and of 40 x 40 in 17 and 29.
"""


def adds_up_rows(dtype: np.dtype[Any], channels: int) -> bool:
    """Whether machine code adds up rows of so many channels, which is faster than all sums of planes."""
    return _gathered_rows.takes(np.empty((1, channels), dtype))


def channels_last(x: Array, border: int) -> Array:
    """x [N, C, *spatial] as rows of channels [N * positions, C], with a border of zeros round the spatial axes.

    Few channels are stored one after the other, as `weighted_rows` takes them.
    """
    dims = tuple(n + 2 * border for n in x.shape[2:])
    plane: Any = (slice(None), *[slice(border, border + n) for n in x.shape[2:]])
    if x.shape[1] < _FEW:
        planes = np.zeros((x.shape[1], len(x), *dims), x.dtype)
        planes[:, *plane] = x.swapaxes(0, 1)
        return planes.reshape(x.shape[1], len(x) * math.prod(dims)).T
    rows = np.empty((len(x), math.prod(dims), x.shape[1]), x.dtype)
    # One image at a time: all of them with their borders take fresh memory, 4.8 ms of 5.9 for 8 x 32 x 80 x 80 numbers.
    image = np.zeros((x.shape[1], *dims), x.dtype)
    for dst, src in zip(rows, x, strict=True):
        image[plane] = src
        _turn(dst, image.reshape(x.shape[1], -1))
    return rows.reshape(-1, x.shape[1])


def _turn(rows: Array, planes: Array) -> None:
    """rows [positions, C] of planes [C, positions], a few at a time where all of them would be in one place of the cache."""
    step = _FEW if planes.strides[0] % _SET == 0 else len(planes)
    for start in range(0, len(planes), step):
        rows[:, start : start + step] = planes[start : start + step].T


def joined(axes: Sequence[Taps], sizes: Sequence[int]) -> Taps:
    """The taps of places in several axes, which have these sizes, from those in each axis."""
    (index, weight), *others = axes
    for (at, factor), size in zip(others, sizes[1:], strict=True):
        index = (index[:, None] * size + at).reshape(len(index) * len(at), -1)
        weight = (weight[:, None] * factor).reshape(len(weight) * len(factor), -1)
    return index, weight


def weighted_rows(rows: Array, taps: Taps, largest: bool = False) -> Array:
    """[places, C]: the sum of the weighted rows [C] of each place, or the largest weighted element of each channel."""
    index, weight = taps[0], taps[1].astype(rows.dtype, copy=False)
    if rows.shape[1] < _FEW:
        y = np.empty((rows.shape[1], index.shape[1]), rows.dtype)
        for dst, plane in zip(y, rows.T, strict=True):
            found = plane.take(index)
            np.multiply(found, weight, found)
            dst[:] = found.max(0) if largest else found.sum(0)
        return y.T
    y = np.empty((index.shape[1], rows.shape[1]), rows.dtype)
    if not largest and _gathered_rows.takes(rows):
        _gathered_rows.add_up(rows, index, weight, y)
        return y
    step = max(_PART // max(len(index) * rows.shape[1], 1), 1)
    for start in range(0, len(y), step):
        part = slice(start, start + step)
        found = rows.take(index[:, part], 0)
        if largest:
            np.multiply(found, weight[:, part, None], found).max(0, out=y[part])
        else:
            np.einsum("kp,kpc->pc", weight[:, part], found, out=y[part])
    return y


def weighted_planes(planes: Array, taps: Taps) -> Array:
    """[C, places]: the sums of `weighted_rows`, of planes [C, positions]. For few taps: each is gathered from every plane."""
    index, weight = taps[0], taps[1].astype(planes.dtype, copy=False)
    y = np.empty((len(planes), index.shape[1]), planes.dtype)
    step = max(_PART // max(len(index) * len(planes), 1), _PLACES)
    each = len(planes) * len(index)
    room = np.empty(each * min(step, index.shape[1]), planes.dtype)  # one for all parts: fresh memory costs most
    for start in range(0, index.shape[1], step):
        part = slice(start, start + step)
        near = index[:, part]
        found = room[: each * near.shape[1]].reshape(len(planes), *near.shape)
        planes.take(near, 1, found, "clip")  # without a check of each index
        np.einsum("tp,ctp->cp", weight[:, part], found, out=y[:, part])
    return y
