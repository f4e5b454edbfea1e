"""Cases of Where: Python's conditional expression."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.where import Where


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Equal shapes, many elements, every input broadcasting, NaN not taken, integers, strings, scalars, batch 0."""
    condition = rng.integers(0, 2, (3, 5)) == 1
    x, y = rng.standard_normal((3, 5)).astype(np.float32), rng.standard_normal((3, 5)).astype(np.float32)
    expected = [[p if c else q for c, p, q in zip(*rows, strict=True)] for rows in zip(condition, x, y, strict=True)]
    yield Case("equal_shapes", Where(), (condition, x, y), (np.array(expected),))
    many = [np.tile(array, (20, 28)) for array in (condition, x, y, np.array(expected))]
    yield Case("many", Where(), tuple(many[:3]), (many[3],))
    spread = [[[p if c else q for c in row] for row in condition] for p, q in zip(x[:, 0], y[:, 1], strict=True)]
    yield Case("broadcast", Where(), (condition, x[:, :1, None], y[:, 1:2, None]), (np.array(spread),))
    yield Case("scalar_condition", Where(), (np.array(False), x, y), (y,))
    yield Case("scalars", Where(), (np.array(True), x[0, :1].reshape(()), y[0, :1].reshape(())), (x[0, :1].reshape(()),))
    lost = np.where(condition, np.float32(1), np.float32(np.nan))
    yield Case("nan_not_taken", Where(), (condition, lost, np.zeros_like(lost)), (condition.astype(np.float32),))
    big = np.array([2**63 - 1, -5]), np.array([0, -(2**63)])
    yield Case("int64", Where(), (np.array([True, False]), *big), (np.array([2**63 - 1, -(2**63)]),))
    words = np.array(["yes"], object), np.array(["no"], object)
    yield Case("string", Where(), (condition[0], *words), (np.array(["yes" if c else "no" for c in condition[0]], object),))
    yield Case("batch_0", Where(), (condition[:0], x[:1], y[:1]), (x[:0],))
