"""Cases of the extremes among inputs and along axes, with those that Python's `min` and `max` choose."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.op import Operator
from dovetail.testing.case import Case

__all__ = ["among_inputs", "places"]


def among_inputs(rng: np.random.Generator, op: Operator, choose: Callable[..., Any]) -> Iterator[Case]:
    """One, two and three inputs, broadcasting, NaN, integers, float16, batch 0."""
    a, b, c = (rng.standard_normal((3, 5)).astype(np.float32) for _ in range(3))
    yield Case("one", op, (a,), (a,))
    yield Case(
        "two", op, (a, b), (np.array([[choose(p, q) for p, q in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]),)
    )
    three = [[choose(values) for values in zip(*rows, strict=True)] for rows in zip(a, b, c, strict=True)]
    yield Case("three", op, (a, b, c), (np.array(three, np.float32),))
    spread = np.array([[choose(p, q) for p in a[0]] for q in b[:, 0]])
    yield Case("broadcast", op, (a[0], b[:, :1]), (spread,))
    lost = np.array([np.nan, 1, np.inf, -np.inf], np.float32), np.array([0, np.nan, 2, 3], np.float32)
    yield Case("nan_wins", op, lost, (np.array([np.nan, np.nan, choose(np.inf, 2), choose(-np.inf, 3)], np.float32),))
    big = np.array([2**63 - 1, -(2**63)]), np.array([2**63 - 2, 0])
    yield Case("int64", op, big, (np.array([choose(2**63 - 1, 2**63 - 2), choose(-(2**63), 0)]),))
    yield Case(
        "uint8", op, (np.array([0, 255], np.uint8), np.array(7, np.uint8)), (np.array([choose(0, 7), choose(255, 7)], np.uint8),)
    )
    half = np.array([1.5, -2], np.float16), np.array([0.5, -1], np.float16)
    yield Case("float16", op, half, (np.array([choose(1.5, 0.5), choose(-2, -1)], np.float16),))
    yield Case("batch_0", op, (a[:0], b[:1]), (a[:0],))


def places(
    rng: np.random.Generator, kind: Callable[..., Operator], choose: Callable[..., Any], first: Sequence[int], last: Sequence[int]
) -> Iterator[Case]:
    """Each axis, keepdims, ties from both ends at `first` and `last`, NaN, integers, batch 0."""
    x = rng.permutation(30).reshape(2, 3, 5).astype(np.float32)
    for axis in (0, 1, 2, -1):
        lists = np.moveaxis(x, axis, -1).tolist()
        want = np.array([[row.index(choose(row)) for row in rows] for rows in lists])
        yield Case(f"axis_{axis}_dropped", kind(axis=axis, keepdims=False), (x,), (want,))
        yield Case(f"axis_{axis}", kind(axis=axis), (x,), (np.expand_dims(want, axis),))
    ties = np.array([[4, 1, 4, 1], [2, 2, 2, 2]], np.int32)
    yield Case("first_of_equal", kind(axis=1, keepdims=False), (ties,), (np.array(first),))
    yield Case("last_of_equal", kind(axis=1, keepdims=False, select_last_index=True), (ties,), (np.array(last),))
    nan = np.array([[1, np.nan, 9, np.nan]], np.float16)
    yield Case("nan", kind(axis=1), (nan,), (np.array([[1]]),))
    yield Case("batch_0", kind(axis=1), (x[:0],), (np.zeros((0, 1, 5), np.int64),))
