"""Cases of ScatterND: coordinate by coordinate."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._scatter import REDUCTIONS, written
from dovetail_ops_onnx.scatter_nd import ScatterND


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Full and partial coordinates, negative ones, every reduction with repeated places, none, batch 0."""
    x = rng.standard_normal((3, 4, 2)).astype(np.float32)
    full = np.array([[0, 0, 1], [2, -1, -2]])
    updates = rng.standard_normal(2).astype(np.float32)
    yield Case("full", ScatterND(), (x, full, updates), (_scattered(x, full, updates),))
    partial = np.array([[[0, 1]], [[-1, 2]], [[1, 0]]])
    slices = rng.standard_normal((3, 1, 2)).astype(np.float32)
    yield Case("partial", ScatterND(), (x, partial, slices), (_scattered(x, partial, slices),))
    repeated = np.array([[1], [0], [1], [-2]])
    planes = rng.standard_normal((4, 4, 2)).astype(np.float32)
    for reduction in REDUCTIONS:
        result = _scattered(x, repeated, planes, reduction)
        yield Case(f"repeated_{reduction}", ScatterND(reduction=reduction), (x, repeated, planes), (result,))
    yield Case("one_coordinate", ScatterND(), (x, np.array([1]), planes[0]), (np.stack([x[0], planes[0], x[2]]),))
    yield Case("none", ScatterND(), (x, np.zeros((0, 2), np.int64), np.zeros((0, 2), np.float32)), (x,))
    yield Case("batch_0", ScatterND(), (x[:0], np.zeros((0, 1), np.int64), x[:0]), (x[:0],))


def _scattered(x: NDArray[Any], indices: NDArray[Any], updates: NDArray[Any], reduction: str = "none") -> NDArray[Any]:
    result = x.copy()
    depth = indices.shape[-1]
    for place in np.ndindex(indices.shape[:-1]):
        target = tuple(int(i) for i in indices[place])
        for rest in np.ndindex(x.shape[depth:]):
            result[(*target, *rest)] = written(result[(*target, *rest)], updates[(*place, *rest)], reduction)
    return result
