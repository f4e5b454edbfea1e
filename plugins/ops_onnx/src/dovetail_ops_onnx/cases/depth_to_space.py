"""Cases of DepthToSpace: by the position of each pixel."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.depth_to_space import DepthToSpace


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both modes with blocks of 2, 3 and 1, batch 0, int8."""
    for mode in ("DCR", "CRD"):
        for size, shape in [(2, (2, 8, 3, 5)), (3, (1, 9, 2, 1)), (1, (1, 3, 2, 2))]:
            x = rng.integers(-99, 99, shape).astype(np.float32)
            yield Case(f"{mode}_{size}", DepthToSpace(blocksize=size, mode=mode), (x,), (_spread(x, size, mode),))
    small = rng.integers(-99, 99, (1, 4, 2, 3)).astype(np.int8)
    yield Case("int8", DepthToSpace(blocksize=2), (small,), (_spread(small, 2, "DCR"),))
    yield Case("batch_0", DepthToSpace(blocksize=2), (small[:0],), (np.zeros((0, 1, 4, 6), np.int8),))


def _spread(x: NDArray[Any], size: int, mode: str) -> NDArray[Any]:
    n, c, h, w = x.shape
    channels = c // size**2
    y = np.zeros((n, channels, h * size, w * size), x.dtype)
    for b, k, row, column in np.ndindex(*y.shape):
        block = row % size * size + column % size
        source = block * channels + k if mode == "DCR" else k * size**2 + block
        y[b, k, row, column] = x[b, source, row // size, column // size]
    return y
