"""Cases of GatherElements: by the formula, element by element."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.gather_elements import GatherElements


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, negative indices, fewer and more of them than data, int32, none."""
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    for axis in (0, 1, 2, -1, -2):
        size = x.shape[axis]
        indices = rng.integers(-size, size, x.shape)
        yield Case(f"axis_{axis}", GatherElements(axis=axis), (x, indices), (_gathered(x, indices, axis),))
    few = rng.integers(0, 4, (2, 1, 3)).astype(np.int32)
    yield Case("fewer", GatherElements(axis=1), (x, few), (_gathered(x, few, 1),))
    many = rng.integers(-3, 3, (9, 4, 5))
    yield Case("more", GatherElements(), (x, many), (_gathered(x, many, 0),))
    yield Case("none", GatherElements(axis=1), (x, np.zeros((3, 0, 5), np.int64)), (np.zeros((3, 0, 5), np.float32),))


def _gathered(x: NDArray[Any], indices: NDArray[Any], axis: int) -> NDArray[Any]:
    gathered = np.zeros(indices.shape, x.dtype)
    for place, index in np.ndenumerate(indices):
        source = list(place)
        source[axis] = int(index)
        gathered[place] = x[tuple(source)]
    return gathered
