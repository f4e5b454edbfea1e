"""Cases of GridSample: place by place and tap by tap."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.grid_sample import GridSample, GridSample_16


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Modes by paddings by corners, volumes, old names, types, an empty grid, batch 0."""
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    grid = rng.uniform(-1.6, 1.6, (2, 3, 2, 2)).astype(np.float32)
    for mode, padding, corners in itertools.product(
        ("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        op = GridSample(mode=mode, padding_mode=padding, align_corners=corners)
        want = _sampled(x, grid, mode, padding, corners)
        yield Case(f"{mode}_{padding}_{int(corners)}", op, (x, grid), (want,), rtol=1e-4, atol=1e-4)
    volume, places = x.reshape(2, 3, 2, 2, 5), rng.uniform(-1.2, 1.2, (2, 2, 1, 3, 3)).astype(np.float32)
    for mode in ("linear", "nearest"):
        want = _sampled(volume, places, mode, "zeros", False)
        yield Case(f"volume_{mode}", GridSample(mode=mode), (volume, places), (want,), rtol=1e-4, atol=1e-5)
    want = _sampled(x, grid, "linear", "zeros", False)
    yield Case("version_16", GridSample_16(), (x, grid), (want,), rtol=1e-4, atol=1e-5)
    want = _sampled(x, grid, "cubic", "border", True)
    old = GridSample_16(mode="bicubic", padding_mode="border", align_corners=True)
    yield Case("version_16_cubic", old, (x, grid), (want,), rtol=1e-4, atol=1e-4)
    one, centre = np.array([[[[7, 9]]]], np.int32), np.array([[[[0.5, 0], [-3, 0]]]], np.float32)
    yield Case("int32", GridSample(mode="nearest"), (one, centre), (np.array([[[[9, 0]]]], np.int32),))
    yield Case(
        "strings", GridSample(mode="nearest"), (one.astype(str).astype(object), centre), (np.array([[[["9", ""]]]], object),)
    )
    wide = x.astype(np.float64)
    want = _sampled(wide, grid.astype(np.float64), "linear", "border", False)
    yield Case("float64", GridSample(padding_mode="border"), (wide, grid.astype(np.float64)), (want,), rtol=1e-9)
    yield Case("empty_grid", GridSample(), (x, grid[:, :0]), (np.zeros((2, 3, 0, 2), np.float32),))
    yield Case("batch_0", GridSample(), (x[:0], grid[:0]), (np.zeros((0, 3, 3, 2), np.float32),))


def _sampled(x: NDArray[Any], grid: NDArray[Any], mode: str, padding: str, corners: bool) -> NDArray[Any]:
    sizes = x.shape[2:]
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, place in itertools.product(range(len(x)), np.ndindex(*grid.shape[1:-1])):
        lines = []
        for size, given in zip(sizes, grid[(n, *place)][::-1], strict=True):
            at = (float(given) + 1) / 2 * (size - 1) if corners else ((float(given) + 1) * size - 1) / 2
            lines.append(_line(at, size, mode, padding, corners))
        for taps in itertools.product(*lines):
            if all(0 <= i < size for (i, _), size in zip(taps, sizes, strict=True)):
                source = x[n][(slice(None), *[i for i, _ in taps])]
                y[n][(slice(None), *place)] += math.prod(w for _, w in taps) * source
    return y.astype(x.dtype)


def _line(at: float, size: int, mode: str, padding: str, corners: bool) -> list[tuple[int, float]]:
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    at = round(at) if mode == "nearest" else at
    if mode != "cubic" and not low <= at <= high:
        at = _inside(at, low, high, size, padding)
    first = math.floor(at)
    t = at - first
    a = -0.75
    if mode == "nearest":
        taps = [(first, 1.0)]
    elif mode == "linear":
        taps = [(first, 1 - t), (first + 1, t)]
    else:
        far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 2 - t)]
        near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
        taps = [(first - 1, far[0]), (first, near[0]), (first + 1, near[1]), (first + 2, far[1])]
    return [(i if 0 <= i < size else int(_inside(i, low, high, size, padding)), w) for i, w in taps]


def _inside(at: float, low: float, high: float, size: int, padding: str) -> float:
    if padding == "zeros":
        return at
    if padding == "border":
        return min(max(at, 0.0), size - 1.0)
    while not low <= at <= high:
        at = 2 * low - at if at < low else 2 * high - at
    return at
