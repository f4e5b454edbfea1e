"""Cases of CumProd: one multiplication after the other, in float64 or as integers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cum_prod import CumProd


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, exclusive and reverse, integers that wrap, float16, size 0."""
    x = rng.uniform(-2, 2, (2, 3, 5)).astype(np.float32)
    for exclusive in (False, True):
        for reverse in (False, True):
            op = CumProd(exclusive=exclusive, reverse=reverse)
            name = f"{'exclusive' if exclusive else 'inclusive'}_{'reverse' if reverse else 'forward'}"
            for axis in (0, 1, -1):
                yield Case(f"{name}_axis_{axis}", op, (x, np.array(axis)), (_products(x, axis, exclusive, reverse),))
    vector = np.array([2, 3, 4], np.int32)
    yield Case("int32", CumProd(exclusive=True), (vector, np.array([0], np.int32)), (np.array([1, 2, 6], np.int32),))
    wrapping = np.array([2**31, 2], np.uint32)
    yield Case("uint32_wraps", CumProd(), (wrapping, np.array(0)), (np.array([2**31, 0], np.uint32),))
    half = np.full(9, 1.5, np.float16)
    yield Case("float16", CumProd(), (half, np.array(0)), (np.array([1.5**n for n in range(1, 10)], np.float16),), rtol=1e-3)
    for exclusive in (False, True):
        empty = np.zeros((2, 0), np.float32)
        yield Case(f"size_0_{exclusive}", CumProd(exclusive=exclusive), (empty, np.array(1)), (empty,))


def _products(x: NDArray[Any], axis: int, exclusive: bool, reverse: bool) -> NDArray[Any]:
    rows = np.moveaxis(x, axis, 0).astype(np.float64)
    found = np.zeros_like(rows)
    running = np.ones(rows.shape[1:])
    for place in reversed(range(len(rows))) if reverse else range(len(rows)):
        found[place] = running if exclusive else running * rows[place]
        running = running * rows[place]
    return np.moveaxis(found, 0, axis).astype(x.dtype)
