"""Cases of CropAndResize: box by box and place by place."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.vision import CropAndResize

Array = NDArray[Any]


def crop_and_resize(rng: np.random.Generator) -> Iterator[Case]:
    """Both modes, boxes that are turned over and that reach outside, crops of one element."""
    x = rng.standard_normal((2, 3, 5, 9)).astype(np.float32)
    boxes = np.array([[0, 0, 1, 1], [0.75, 0.25, 0.25, 0.125], [-0.5, 0.25, 0.5, 1.25]], np.float32)
    images = np.array([1, 0, 1], np.int32)
    for mode in ("bilinear", "nearest"):
        for size in ((4, 3), (1, 1)):
            op = CropAndResize(mode=mode, extrapolation_value=-2.0)
            want = _cropped(x, boxes, images, size, mode)
            inputs = (x, boxes, images, np.array(size, np.int32))
            yield Case(f"{mode}_{size[0]}_{size[1]}", op, inputs, (want,), constants=(3,), rtol=1e-4, atol=1e-5)


def _cropped(x: Array, boxes: Array, images: Array, size: tuple[int, int], mode: str) -> Array:
    y = np.full((len(boxes), x.shape[1], *size), -2.0, np.float32)
    for box, row, column in np.ndindex(len(boxes), *size):
        v = _place(boxes[box, 0], boxes[box, 2], row, size[0], x.shape[2])
        h = _place(boxes[box, 1], boxes[box, 3], column, size[1], x.shape[3])
        if not (0 <= v <= x.shape[2] - 1 and 0 <= h <= x.shape[3] - 1):
            continue
        image = x[images[box]].astype(np.float64)
        if mode == "nearest":
            y[box, :, row, column] = image[:, math.floor(v + 0.5), math.floor(h + 0.5)]
            continue
        down, across = (np.maximum(0, 1 - np.abs(np.arange(n) - at)) for n, at in ((x.shape[2], v), (x.shape[3], h)))
        y[box, :, row, column] = np.einsum("crk,r,k->c", image, down, across)
    return y


def _place(first: float, last: float, index: int, count: int, size: int) -> float:
    if count == 1:
        return float((first + last) / 2 * (size - 1))
    return float((first + (last - first) * index / (count - 1)) * (size - 1))
