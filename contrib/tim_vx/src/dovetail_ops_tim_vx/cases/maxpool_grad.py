"""Cases of MaxpoolGrad: the data and golden numbers of TIM-VX's maxpoolgrad_test.cc, where a kernel is 3 wide and 2 high."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_tim_vx.maxpool_grad import MaxpoolGrad

Array = NDArray[Any]

APART = np.array([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]], np.float32)
OVERLAPPING = np.array([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]], np.float32)
UPDATES = np.array([[2, 6], [3, 1]], np.float32)


def placed(shape: tuple[int, int], *values: tuple[int, int, float]) -> Array:
    """Zeros but for the numbers at (row, column, number)."""
    result = np.zeros(shape, np.float32)
    for row, column, value in values:
        result[row, column] = value
    return result


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Without overlap, with overlap on one and on four planes, equal elements, one spatial dimension, batch 0."""
    apart = placed((4, 6), (0, 4, 6), (1, 2, 2), (2, 2, 3), (3, 5, 1))
    op = MaxpoolGrad(kernel_shape=(2, 3), strides=(2, 3))
    yield Case("golden_apart", op, (APART[None, None], UPDATES[None, None]), (apart[None, None],))
    op = MaxpoolGrad(kernel_shape=(2, 3), strides=(2, 2))
    overlapping = placed((4, 5), (1, 2, 8), (2, 2, 3), (3, 3, 1))
    for planes in ((1, 1), (2, 2)):
        x, dy, dx = (np.tile(a, (*planes, 1, 1)) for a in (OVERLAPPING, UPDATES, overlapping))
        yield Case(f"golden_overlapping_{planes[0]}x{planes[1]}", op, (x, dy), (dx,))
    yield Case("batch_0", op, (x[:0], dy[:0]), (dx[:0],))
    equal = np.zeros((1, 1, 3, 3), np.float32)
    first = placed((3, 3), (0, 0, 2), (0, 1, 6), (1, 0, 3), (1, 1, 1))
    yield Case("equal_elements", MaxpoolGrad(kernel_shape=(2, 2)), (equal, UPDATES[None, None]), (first[None, None],))
    row, update = np.array([[[1, 5, 2, 5]]], np.float32), np.array([[[1, 2, 4]]], np.float32)
    yield Case("one_dimension", MaxpoolGrad(kernel_shape=(2,)), (row, update), (np.array([[[0, 3, 0, 4]]], np.float32),))
