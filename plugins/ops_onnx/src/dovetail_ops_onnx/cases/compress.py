"""Cases of Compress: NumPy's boolean indices."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.compress import Compress


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, the flattened input, short conditions, nothing chosen, a condition that is constant."""
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    for axis in (0, 1, 2, -1, -3):
        condition: NDArray[np.bool_] = rng.integers(0, 2, (x.shape[axis],)).astype(np.bool_)
        index: list[Any] = [slice(None)] * 3
        index[axis] = condition
        yield Case(f"axis_{axis}", Compress(axis=axis), (x, condition), (x[tuple(index)],))
        yield Case(f"constant_axis_{axis}", Compress(axis=axis), (x, condition), (x[tuple(index)],), constants=(1,))
    short = np.array([False, True])
    yield Case("short", Compress(axis=1), (x, short), (x[:, 1:2],))
    flat = rng.integers(0, 2, 40).astype(np.bool_)
    yield Case("flattened", Compress(), (x, flat), (x.reshape(-1)[:40][flat],))
    mask: NDArray[np.bool_] = rng.integers(0, 2, x.shape).astype(np.bool_)
    yield Case("mask", Compress(), (x, mask), (x[mask],))
    yield Case("nothing", Compress(axis=0), (x, np.zeros(3, np.bool_)), (x[:0],))
    yield Case("int64", Compress(), (np.arange(4), np.array([True, False, True])), (np.array([0, 2]),))
    yield Case("batch_0", Compress(axis=1), (x[:0], short), (x[:0, 1:2],))
