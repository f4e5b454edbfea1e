"""Cases of AffineGrid: point by point."""

import itertools
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.affine_grid import AffineGrid


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Two and three dimensions, both conventions, one element an axis, float64, batch 0."""
    for spatial, corners in itertools.product(((2, 5), (3, 1, 4)), (False, True)):
        r = len(spatial)
        theta = rng.standard_normal((2, r, r + 1)).astype(np.float32)
        want = np.zeros((2, *spatial, r))
        for n, place in itertools.product(range(2), np.ndindex(*spatial)):
            point = [_at(i, size, corners) for i, size in zip(place, spatial, strict=True)]
            want[(n, *place)] = theta[n].astype(np.float64) @ np.array([*point[::-1], 1.0])
        op, size = AffineGrid(align_corners=corners), np.array([2, 3, *spatial])
        inputs, outputs = (theta, size), (want.astype(np.float32),)
        yield Case(f"rank_{r}_corners_{int(corners)}", op, inputs, outputs, constants=(1,), atol=1e-5)
    size = np.array([0, 3, 2, 2])
    yield Case("batch_0", AffineGrid(), (np.zeros((0, 2, 3)), size), (np.zeros((0, 2, 2, 2)),), constants=(1,))


def _at(i: int, size: int, corners: bool) -> float:
    if corners:
        return -1 + 2 * i / (size - 1) if size > 1 else -1.0
    return -1 + (2 * i + 1) / size
