"""Cases that operators on the bits of integers share."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dovetail.op import Operator
from dovetail.testing.case import Case

__all__ = ["bits"]


def bits(rng: np.random.Generator, op: Operator, function: Callable[[int, int], int]) -> Iterator[Case]:
    """Every integer type with its bounds, broadcasting, scalars, batch 0; each element by `function` in Python."""

    def every(a: Any, b: Any, dtype: Any) -> Any:
        pairs = np.broadcast(a, b)
        return np.array([function(int(p), int(q)) for p, q in pairs], dtype).reshape(pairs.shape)

    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        info = np.iinfo(name)
        a = rng.integers(info.min, info.max, (3, 7), np.dtype(name), endpoint=True)
        b = np.array([info.min, info.max, 0, 1, 2, 3, info.max // 2], name)
        yield Case(name, op, (a, b), (every(a, b, name),))
    a, b = np.array(12, np.int32), np.array(10, np.int32)
    yield Case("scalars", op, (a, b), (every(a, b, np.int32),))
    empty = np.zeros((0, 2), np.int32)
    yield Case("batch_0", op, (empty, np.array([1, 2], np.int32)), (empty,))
