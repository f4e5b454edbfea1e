"""Cases of ConvInteger: expected values from loops over output positions and kernel elements in Python's integers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.conv_integer import ConvInteger

__all__ = ["cases", "whole_convolution"]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each pair of types, zero points at both ends, for each channel, groups, depthwise, odd channels, padding, batch 0."""
    for xt in (np.uint8, np.int8):
        for wt in (np.uint8, np.int8):
            x, w = _any(rng, (2, 3, 6, 5), xt), _any(rng, (5, 3, 3, 2), wt)
            zx, zw = np.array(np.iinfo(xt).max, xt), np.array(np.iinfo(wt).min, wt)
            want = whole_convolution(x, w, zx, zw, (2, 1), (1, 0))[:, :, :4, :4]
            op = ConvInteger(strides=(2, 1), pads=(1, 0, 2, 0))
            name = f"{np.dtype(xt).name}_{np.dtype(wt).name}"
            yield Case(name, op, (x, w, zx, zw), (want,))
    x, w = _any(rng, (1, 6, 5, 7), np.uint8), _any(rng, (4, 3, 3, 3), np.int8)
    yield Case("no_zero_points", ConvInteger(group=2), (x, w), (whole_convolution(x, w, group=2)[:, :, :3, :5],))
    zeros = _any(rng, (4,), np.int8)
    want = whole_convolution(x, w, np.array(128, np.uint8), zeros, group=2)[:, :, :3, :5]
    yield Case("zero_point_of_each_channel", ConvInteger(group=2), (x, w, np.array(128, np.uint8), zeros), (want,))
    x, w = _any(rng, (1, 7, 5, 5), np.uint8), _any(rng, (7, 1, 3, 3), np.int8)
    zero = np.array(3, np.uint8)
    want = whole_convolution(x, w, zero, begin=(1, 1), group=7)[:, :, :5, :5]
    yield Case("depthwise_padded", ConvInteger(group=7, pads=(1, 1, 1, 1)), (x, w, zero), (want,))
    yield Case("batch_0", ConvInteger(group=7), (x[:0], w, zero), (np.zeros((0, 7, 3, 3), np.int32),))


def _any(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def whole_convolution(
    x: NDArray[Any],
    w: NDArray[Any],
    zx: NDArray[Any] | int = 0,
    zw: NDArray[Any] | int = 0,
    strides: Sequence[int] = (1, 1),
    begin: Sequence[int] = (0, 0),
    group: int = 1,
) -> NDArray[Any]:
    """int32 sums over two spatial axes at every position whose window begins inside of the input; pads add nothing."""
    wide_w = w.astype(np.int64) - np.reshape(np.broadcast_to(zw, w.shape[:1]), (-1, 1, 1, 1)).astype(np.int64)
    wide_x = x.astype(np.int64) - np.int64(zx)
    sizes = [-(-(n + b) // s) for n, b, s in zip(x.shape[2:], begin, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    channels, maps = w.shape[1], w.shape[0] // group
    for g, i, j, p, q in np.ndindex(group, *sizes, *w.shape[2:]):
        row, column = i * strides[0] - begin[0] + p, j * strides[1] - begin[1] + q
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            of_group = slice(g * maps, (g + 1) * maps)
            y[:, of_group, i, j] += wide_x[:, g * channels : (g + 1) * channels, row, column] @ wide_w[of_group, :, p, q].T
    return y.astype(np.int32)
