"""Cases of Unique: dictionaries of Python."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.unique import Unique


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Sorted and in order of occurrence, flattened and along each axis, integers, batch 0."""
    x = rng.integers(0, 3, (4, 3, 2)).astype(np.float32)
    for sorted_ in (True, False):
        name = "sorted" if sorted_ else "in_order"
        op = Unique(sorted=sorted_)
        yield Case(name, op, (x,), _by_hand(list(x.reshape(-1)), sorted_, np.float32, (-1,)))
        yield Case(f"{name}_int64", op, (np.array([3, 1, 3, 2]),), _by_hand([3, 1, 3, 2], sorted_, np.int64, (-1,)))
        for axis in (0, 1, -1):
            moved = np.moveaxis(x, axis, 0)
            values, *rest = _by_hand([tuple(s.reshape(-1)) for s in moved], sorted_, np.float32, (-1, *moved.shape[1:]))
            op = Unique(sorted=sorted_, axis=axis)
            yield Case(f"{name}_axis_{axis}", op, (x,), (np.ascontiguousarray(np.moveaxis(values, 0, axis)), *rest))
    nothing = np.zeros(0, np.int64)
    yield Case("batch_0", Unique(), (np.zeros((0, 2), np.float32),), (np.zeros(0, np.float32), nothing, nothing, nothing))


def _by_hand(items: list[Any], sorted_: bool, dtype: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    distinct = list(dict.fromkeys(items))
    if sorted_:
        distinct.sort()
    first = [items.index(d) for d in distinct]
    inverse = [distinct.index(i) for i in items]
    counts = [items.count(d) for d in distinct]
    return np.array(distinct, dtype).reshape(shape), np.array(first), np.array(inverse), np.array(counts)
