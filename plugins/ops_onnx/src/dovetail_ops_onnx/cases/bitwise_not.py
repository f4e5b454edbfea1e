"""Cases of BitwiseNot: Python's integers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.bitwise_not import BitwiseNot


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every integer type with its bounds, a scalar, batch 0."""
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        info = np.iinfo(name)
        x = np.array([[info.min, info.max, 0], [1, 2, info.max // 3]], name)
        mask = 0 if info.min else info.max
        expected = [[mask - int(v) if not info.min else -int(v) - 1 for v in row] for row in x]
        yield Case(name, BitwiseNot(), (x,), (np.array(expected, name),))
    yield Case("scalar", BitwiseNot(), (np.array(5, np.int32),), (np.array(-6, np.int32),))
    yield Case("batch_0", BitwiseNot(), (np.zeros((0, 2), np.int32),), (np.zeros((0, 2), np.int32),))
