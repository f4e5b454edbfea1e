"""Cases of Transpose: element by element."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.transpose import Transpose


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every order of three axes, the default, four axes, a vector, a scalar, batch 0, int8."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    for perm in itertools.permutations(range(3)):
        yield Case("perm_" + "".join(map(str, perm)), Transpose(perm=perm), (x,), (_moved(x, perm),))
    yield Case("default", Transpose(), (x,), (_moved(x, (2, 1, 0)),))
    image = rng.integers(-99, 99, (2, 3, 4, 5)).astype(np.int8)
    yield Case("to_channels_last", Transpose(perm=(0, 2, 3, 1)), (image,), (_moved(image, (0, 2, 3, 1)),))
    yield Case("vector", Transpose(), (x[0, 0],), (x[0, 0],))
    yield Case("scalar", Transpose(), (np.array(2.5),), (np.array(2.5),))
    yield Case("batch_0", Transpose(perm=(2, 0, 1)), (x[:0],), (np.zeros((5, 0, 3), np.float32),))


def _moved(x: NDArray[Any], perm: tuple[int, ...]) -> NDArray[Any]:
    moved = np.zeros([x.shape[axis] for axis in perm], x.dtype)
    for index in np.ndindex(*moved.shape):
        moved[index] = x[tuple(index[perm.index(axis)] for axis in range(x.ndim))]
    return moved
