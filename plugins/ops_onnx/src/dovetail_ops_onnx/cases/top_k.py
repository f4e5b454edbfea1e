"""Cases of TopK: Python's stable sort of each list, and by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.top_k import TopK


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each axis, both ends, ties, NaN, unsigned integers, k 0 and k of the whole axis, batch 0."""
    x = rng.standard_normal((3, 4, 7)).astype(np.float32)
    for axis, k in ((-1, 3), (1, 2), (0, 3), (2, 7), (1, 0)):
        for largest in (True, False):
            op = TopK(axis=axis, largest=largest)
            name = f"axis_{axis}_k_{k}_{'largest' if largest else 'smallest'}"
            yield Case(name, op, (x, np.array([k])), _sorted(x, axis, k, largest), constants=(1,))
    ties = np.array([[2, 3, 2, 3, 3, 0]], np.uint8)
    want = (np.array([[3, 3, 3, 2]], np.uint8), np.array([[1, 3, 4, 0]]))
    yield Case("ties_uint8_largest", TopK(), (ties, np.array([4])), want, constants=(1,))
    want = (np.array([[0, 2, 2, 3]], np.uint8), np.array([[5, 0, 2, 1]]))
    yield Case("ties_uint8_smallest", TopK(largest=False), (ties, np.array([4])), want, constants=(1,))
    nan = np.array([1, np.nan, np.inf, -3], np.float16)
    yield Case("nan", TopK(), (nan, np.array([2])), (np.array([np.nan, np.inf], np.float16), np.array([1, 2])), constants=(1,))
    low = np.array([-128, 127, 0], np.int8)
    yield Case("int8_limits", TopK(), (low, np.array([2])), (np.array([127, 0], np.int8), np.array([1, 2])), constants=(1,))
    empty = (np.zeros((0, 4, 2), np.float32), np.zeros((0, 4, 2), np.int64))
    yield Case("batch_0", TopK(), (x[:0], np.array([2])), empty, constants=(1,))


def _sorted(x: NDArray[Any], axis: int, k: int, largest: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = np.moveaxis(x, axis, -1)
    index = np.zeros((*rows.shape[:-1], k), np.int64)
    for at in np.ndindex(*rows.shape[:-1]):
        row = rows[at].tolist()
        index[at] = sorted(range(len(row)), key=lambda i: -row[i] if largest else row[i])[:k]
    values = np.array([[[rows[i, j, p] for p in line] for j, line in enumerate(plane)] for i, plane in enumerate(index.tolist())])
    return np.moveaxis(values.reshape(index.shape).astype(x.dtype), -1, axis), np.moveaxis(index, -1, axis)
