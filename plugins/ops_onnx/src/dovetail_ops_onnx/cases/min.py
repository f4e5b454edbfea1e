"""Cases of Min: Python's min, element by element."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.min import Min


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One, two and three inputs, broadcasting, NaN, integers, float16, batch 0."""
    a, b, c = (rng.standard_normal((3, 5)).astype(np.float32) for _ in range(3))
    yield Case("one", Min(), (a,), (a,))
    yield Case(
        "two", Min(), (a, b), (np.array([[min(p, q) for p, q in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]),)
    )
    three = [[min(values) for values in zip(*rows, strict=True)] for rows in zip(a, b, c, strict=True)]
    yield Case("three", Min(), (a, b, c), (np.array(three, np.float32),))
    spread = np.array([[min(p, q) for p in a[0]] for q in b[:, 0]])
    yield Case("broadcast", Min(), (a[0], b[:, :1]), (spread,))
    lost = np.array([np.nan, 1, np.inf, -np.inf], np.float32), np.array([0, np.nan, 2, 3], np.float32)
    yield Case("nan_wins", Min(), lost, (np.array([np.nan, np.nan, min(np.inf, 2), min(-np.inf, 3)], np.float32),))
    big = np.array([2**63 - 1, -(2**63)]), np.array([2**63 - 2, 0])
    yield Case("int64", Min(), big, (np.array([min(2**63 - 1, 2**63 - 2), min(-(2**63), 0)]),))
    yield Case(
        "uint8", Min(), (np.array([0, 255], np.uint8), np.array(7, np.uint8)), (np.array([min(0, 7), min(255, 7)], np.uint8),)
    )
    half = np.array([1.5, -2], np.float16), np.array([0.5, -1], np.float16)
    yield Case("float16", Min(), half, (np.array([min(1.5, 0.5), min(-2, -1)], np.float16),))
    yield Case("batch_0", Min(), (a[:0], b[:1]), (a[:0],))
