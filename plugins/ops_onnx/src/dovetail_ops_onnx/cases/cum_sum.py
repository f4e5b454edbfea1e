"""Cases of CumSum: one addition after the other, in float64 or as integers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cum_sum import CumSum


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, exclusive and reverse, integers that wrap, float16, size 0, infinity after an exclusive sum."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    for exclusive in (False, True):
        for reverse in (False, True):
            op = CumSum(exclusive=exclusive, reverse=reverse)
            name = f"{'exclusive' if exclusive else 'inclusive'}_{'reverse' if reverse else 'forward'}"
            for axis in (0, 1, 2, -1, -3):
                yield Case(f"{name}_axis_{axis}", op, (x, np.array(axis)), (_sums(x, axis, exclusive, reverse),))
    vector = np.array([1, 2, 3], np.int32)
    yield Case("int32", CumSum(exclusive=True), (vector, np.array([0], np.int32)), (np.array([0, 1, 3], np.int32),))
    yield Case(
        "uint32_wraps", CumSum(), (np.array([2**32 - 1, 2], np.uint32), np.array(0)), (np.array([2**32 - 1, 1], np.uint32),)
    )
    half = np.full(9, 0.1, np.float16)
    expected = np.array([float(half[0]) * n for n in range(1, 10)]).astype(np.float16)
    yield Case("float16", CumSum(), (half, np.array(0)), (expected,), rtol=1e-3)
    last = np.array([1, np.inf], np.float32)
    yield Case("infinity_excluded", CumSum(exclusive=True), (last, np.array(0)), (np.array([0, 1], np.float32),))
    for exclusive in (False, True):
        empty = np.zeros((2, 0), np.float32)
        yield Case(f"size_0_{exclusive}", CumSum(exclusive=exclusive), (empty, np.array(1)), (empty,))


def _sums(x: NDArray[Any], axis: int, exclusive: bool, reverse: bool) -> NDArray[Any]:
    rows = np.moveaxis(x, axis, 0).astype(np.float64)
    sums = np.zeros_like(rows)
    total = np.zeros(rows.shape[1:])
    for place in reversed(range(len(rows))) if reverse else range(len(rows)):
        sums[place] = total if exclusive else total + rows[place]
        total = total + rows[place]
    return np.moveaxis(sums, 0, axis).astype(x.dtype)
