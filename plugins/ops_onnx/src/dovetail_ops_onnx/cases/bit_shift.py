"""Cases of BitShift: Python's integers."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.bit_shift import BitShift


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every integer type in both directions, shifts up to the width, broadcasting, batch 0."""
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        info = np.iinfo(name)
        width = 8 * np.dtype(name).itemsize
        x = np.array([[info.min], [info.max], [1], [3], [info.max // 3]], name)
        y = np.array([0, 1, 2, width - 1, width], name)
        left = [[_wrapped(int(a) << int(b), info) for b in y] for a in x[:, 0]]
        right = [[int(a) >> int(b) for b in y] for a in x[:, 0]]
        yield Case(f"{name}_left", BitShift(direction="LEFT"), (x, y), (np.array(left, name),))
        yield Case(f"{name}_right", BitShift(direction="RIGHT"), (x, y), (np.array(right, name),))
    empty = np.zeros((0, 2), np.uint8)
    yield Case("batch_0", BitShift(direction="LEFT"), (empty, np.array([1, 2], np.uint8)), (empty,))


def _wrapped(value: int, info: Any) -> int:
    span = int(info.max) - int(info.min) + 1
    return (value - int(info.min)) % span + int(info.min)
