"""Cases of DeformConv: sample by sample in float64."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.deform_conv import DeformConv


def cases(_: np.random.Generator) -> Iterator[Case]:
    """Both groups, masks, strides, dilations, pads, 1-D to 3-D, whole offsets, far outside, batch 0, float types."""
    rng = np.random.default_rng(19)  # the cases of all operators after this one keep their numbers
    x, w, b = _random(rng, (2, 4, 6, 5), (6, 4, 3, 2), (6,))
    offset, mask = _random(rng, (2, 12, 4, 4), (2, 6, 4, 4))
    yield Case("plain", DeformConv(), (x, w, offset, b), (_deformed(x, w, offset, b),), atol=1e-5)
    yield Case(
        "mask", DeformConv(kernel_shape=(3, 2)), (x, w, offset, None, mask), (_deformed(x, w, offset, mask=mask),), atol=1e-5
    )
    zero = np.zeros_like(offset)
    yield Case("no_offset", DeformConv(), (x, w, zero), (_deformed(x, w, zero),), atol=1e-5)
    yield Case("far", DeformConv(), (x, w, 1e9 * offset), (np.zeros((2, 6, 4, 4), np.float32),))
    yield Case("batch_0", DeformConv(), (x[:0], w, offset[:0]), (np.zeros((0, 6, 4, 4), np.float32),))
    whole = np.round(2 * offset)
    yield Case("whole_offsets", DeformConv(), (x, w, whole), (_deformed(x, w, whole),), atol=1e-5)
    yield from _attributes(rng)
    yield from _ranks(rng)
    for dtype, tolerance in ((np.float16, 1e-2), (np.float64, 1e-12)):
        given = [v.astype(dtype) for v in (x, w, offset, b, mask)]
        want = _deformed(*given)
        yield Case(np.dtype(dtype).name, DeformConv(), tuple(given), (want,), rtol=tolerance, atol=tolerance)


def _attributes(rng: np.random.Generator) -> Iterator[Case]:
    x, w, b = _random(rng, (2, 12, 7, 8), (4, 6, 3, 3), (4,))
    how: dict[str, Any] = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 3)}
    offset, mask = _random(rng, (2, 54, 4, 7), (2, 27, 4, 7))
    op = DeformConv(group=2, offset_group=3, **how)
    want = _deformed(x, w, offset, b, mask, group=2, offset_group=3, **how)
    yield Case("groups_of_other_channels", op, (x, w, offset, b, mask), (want,), atol=1e-4)
    (w,) = _random(rng, (12, 1, 3, 3))
    want = _deformed(x, w, offset, None, mask, group=12, offset_group=3, **how)
    yield Case("depthwise", DeformConv(group=12, offset_group=3, **how), (x, w, offset, None, mask), (want,), atol=1e-5)
    x, w, offset = _random(rng, (2, 4, 4, 3), (8, 2, 3, 3), (2, 18, 2, 1))
    yield Case("more_maps_than_outputs", DeformConv(group=2), (x, w, offset), (_deformed(x, w, offset, group=2),), atol=1e-5)


def _ranks(rng: np.random.Generator) -> Iterator[Case]:
    x, w, offset = _random(rng, (2, 2, 9), (3, 2, 3), (2, 3, 9))
    yield Case("1d", DeformConv(pads=(1, 1)), (x, w, offset), (_deformed(x, w, offset, pads=(1, 1)),), atol=1e-5)
    x, w, offset = _random(rng, (1, 9, 4, 3, 5), (2, 9, 2, 1, 3), (1, 18, 3, 3, 3))
    yield Case("3d", DeformConv(), (x, w, offset), (_deformed(x, w, offset),), atol=1e-4)


def _random(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[NDArray[Any]]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _deformed(
    x: NDArray[Any],
    w: NDArray[Any],
    offset: NDArray[Any],
    b: NDArray[Any] | None = None,
    mask: NDArray[Any] | None = None,
    *,
    strides: Sequence[int] = (1, 1, 1),
    dilations: Sequence[int] = (1, 1, 1),
    pads: Sequence[int] = (0,) * 6,
    group: int = 1,
    offset_group: int = 1,
) -> NDArray[Any]:
    rank, kernel = x.ndim - 2, w.shape[2:]
    y = np.zeros((x.shape[0], w.shape[0], *offset.shape[2:]))
    steps = np.indices(offset.shape[2:])
    sampled: dict[tuple[int, int, int], NDArray[Any]] = {}  # maps that read the same channel share what they read
    for n, m, c in np.ndindex(*y.shape[:2], w.shape[1]):
        channel = m // (w.shape[0] // group) * w.shape[1] + c
        first = channel // (x.shape[1] // offset_group) * math.prod(kernel)
        for number, k in enumerate(np.ndindex(*kernel)):
            if (n, channel, number) not in sampled:
                tap = first + number
                moves = offset[n, tap * rank : (tap + 1) * rank].astype(np.float64)
                at = [steps[a] * strides[a] - pads[a] + k[a] * dilations[a] + moves[a] for a in range(rank)]
                factor = 1.0 if mask is None else mask[n, tap].astype(np.float64)
                sampled[n, channel, number] = _interpolated(x[n, channel], at) * factor
            y[n, m] += sampled[n, channel, number] * float(w[(m, c, *k)])
    if b is not None:
        y += b.astype(np.float64).reshape(-1, *(1,) * rank)
    return y.astype(x.dtype)


def _interpolated(plane: NDArray[Any], at: list[NDArray[Any]]) -> NDArray[Any]:
    """The plane at these positions, an array for each axis; 0 outside."""
    total = np.zeros(at[0].shape)
    for corner in itertools.product((0, 1), repeat=plane.ndim):
        place = [np.floor(v).astype(np.int64) + i for v, i in zip(at, corner, strict=True)]
        weight = math.prod(1 - np.abs(v - p) for v, p in zip(at, place, strict=True))
        inside = np.logical_and.reduce([(p >= 0) & (p < size) for p, size in zip(place, plane.shape, strict=True)])
        total[inside] += weight[inside] * plane[tuple(p[inside] for p in place)]
    return total
