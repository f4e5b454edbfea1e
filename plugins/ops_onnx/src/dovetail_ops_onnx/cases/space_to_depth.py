"""Cases of SpaceToDepth: by the position of each pixel."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.space_to_depth import SpaceToDepth


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both modes with blocks of 2, 3 and 1, batch 0, int8."""
    for mode in ("DCR", "CRD"):
        for size, shape in [(2, (2, 2, 6, 10)), (3, (1, 1, 6, 3)), (1, (1, 3, 2, 2))]:
            x = rng.integers(-99, 99, shape).astype(np.float32)
            yield Case(f"{mode}_{size}", SpaceToDepth(blocksize=size, mode=mode), (x,), (_stacked(x, size, mode),))
    small = rng.integers(-99, 99, (1, 2, 4, 2)).astype(np.int8)
    yield Case("int8", SpaceToDepth(blocksize=2), (small,), (_stacked(small, 2, "DCR"),))
    yield Case("batch_0", SpaceToDepth(blocksize=2), (small[:0],), (np.zeros((0, 8, 2, 1), np.int8),))


def _stacked(x: NDArray[Any], size: int, mode: str) -> NDArray[Any]:
    n, c, h, w = x.shape
    y = np.zeros((n, c * size**2, h // size, w // size), x.dtype)
    for b, k, row, column in np.ndindex(*x.shape):
        block = row % size * size + column % size
        target = block * c + k if mode == "DCR" else k * size**2 + block
        y[b, target, row // size, column // size] = x[b, k, row, column]
    return y
