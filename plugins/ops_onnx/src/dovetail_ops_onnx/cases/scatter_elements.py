"""Cases of ScatterElements: by the formula, update by update."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._scatter import REDUCTIONS, written
from dovetail_ops_onnx.scatter_elements import ScatterElements


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, negative indices, fewer updates, every reduction with repeated places, integers, none."""
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    for axis in (0, 1, 2, -1, -2):
        updates = rng.standard_normal(x.shape).astype(np.float32)
        unique = np.argsort(rng.random(x.shape), axis=axis) - x.shape[axis] * rng.integers(0, 2, x.shape)
        yield Case(f"axis_{axis}", ScatterElements(axis=axis), (x, unique, updates), (_scattered(x, unique, updates, axis),))
    few = rng.integers(0, 4, (2, 3, 2)).astype(np.int32)
    updates = rng.standard_normal(few.shape).astype(np.float32)
    for reduction in REDUCTIONS:
        op = ScatterElements(axis=1, reduction=reduction)
        yield Case(f"repeated_{reduction}", op, (x, few, updates), (_scattered(x, few, updates, 1, reduction),))
    counts, ones = np.zeros(5, np.int64), np.ones(400, np.int64)
    places = rng.integers(-5, 5, 400)
    histogram = np.bincount(places % 5, minlength=5)
    yield Case("histogram", ScatterElements(reduction="add"), (counts, places, ones), (histogram,))
    half = np.zeros(2, np.float16)
    small = np.full(3000, 1, np.float16)
    at_one = np.ones(3000, np.int64)
    yield Case("narrow", ScatterElements(reduction="add"), (half, at_one, small), (np.array([0, 3000], np.float16),))
    empty = np.zeros((3, 0, 5), np.float32)
    yield Case("none", ScatterElements(axis=1), (x, np.zeros((3, 0, 5), np.int64), empty), (x,))
    yield Case("batch_0", ScatterElements(axis=1), (x[:0], few[:0], updates[:0]), (x[:0],))


def _scattered(x: NDArray[Any], indices: NDArray[Any], updates: NDArray[Any], axis: int, reduction: str = "none") -> NDArray[Any]:
    result = x.copy()
    for place, index in np.ndenumerate(indices):
        target = list(place)
        target[axis] = int(index)
        result[tuple(target)] = written(result[tuple(target)], updates[place], reduction)
    return result
