"""Cases of RoiAlign: sample by sample."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.roi_align import RoiAlign, RoiAlign_10


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both modes, both conventions, given and derived numbers of samples, boxes over the edge, no box."""
    x = rng.standard_normal((2, 3, 6, 7)).astype(np.float32)
    rois = np.array([[0, 0, 6, 5], [1.5, 2.25, 9.5, 4], [-3, -2, 3, 3.5], [4, 4, 4.2, 4.1]], np.float32)
    batches = np.array([0, 1, 1, 0])
    for mode, ratio, half in itertools.product(("avg", "max"), (0, 2), (True, False)):
        want = _aligned(x, rois, batches, (2, 3), mode, ratio, 0.75, half)
        coordinates = "half_pixel" if half else "output_half_pixel"
        op = RoiAlign(
            mode=mode,
            output_height=2,
            output_width=3,
            sampling_ratio=ratio,
            spatial_scale=0.75,
            coordinate_transformation_mode=coordinates,
        )
        yield Case(f"{mode}_{ratio}_{coordinates}", op, (x, rois, batches), (want,), rtol=1e-4, atol=1e-5)
    want = _aligned(x, rois, batches, (1, 1), "avg", 0, 1.0, False)
    yield Case("version_10", RoiAlign_10(), (x, rois, batches), (want,), rtol=1e-4, atol=1e-5)
    yield Case("no_box", RoiAlign(), (x, rois[:0], batches[:0]), (np.zeros((0, 3, 1, 1), np.float32),))


def _aligned(
    x: NDArray[Any],
    rois: NDArray[Any],
    batches: NDArray[Any],
    out: tuple[int, int],
    mode: str,
    ratio: int,
    scale: float,
    half: bool,
) -> NDArray[Any]:
    y = np.zeros((len(rois), x.shape[1], *out))
    for n, c, i, j in np.ndindex(*y.shape):
        x1, y1, x2, y2 = (float(v) * scale - (0.5 if half else 0.0) for v in rois[n])
        height, width = (y2 - y1, x2 - x1) if half else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
        rows, columns = ratio or math.ceil(height / out[0]), ratio or math.ceil(width / out[1])
        found = []
        for a, b in np.ndindex(rows, columns):
            v = y1 + (i + (a + 0.5) / rows) * height / out[0]
            h = x1 + (j + (b + 0.5) / columns) * width / out[1]
            found.append(_weighted(x[batches[n], c], v, h))
        y[n, c, i, j] = sum(map(sum, found)) / len(found) if mode == "avg" else max(map(max, found))
    return y.astype(x.dtype)


def _weighted(plane: NDArray[Any], v: float, h: float) -> list[float]:
    height, width = plane.shape
    if not (-1 <= v <= height and -1 <= h <= width):
        return [0.0] * 4
    v, h = min(max(v, 0.0), height - 1.0), min(max(h, 0.0), width - 1.0)
    i, j = int(v), int(h)
    a, b = v - i, h - j
    i1, j1 = min(i + 1, height - 1), min(j + 1, width - 1)
    weights = ((i, j, (1 - a) * (1 - b)), (i, j1, (1 - a) * b), (i1, j, a * (1 - b)), (i1, j1, a * b))
    return [float(plane[r, c]) * w for r, c, w in weights]
