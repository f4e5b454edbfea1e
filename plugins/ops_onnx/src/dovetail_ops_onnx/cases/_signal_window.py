"""Cases that the windows of signal processing share."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.op import DType, Operator
from dovetail.testing.case import Case

__all__ = ["windows"]


def windows(_: np.random.Generator, cls: type[Operator], coefficients: tuple[float, float, float]) -> Iterator[Case]:
    """Odd and even sizes, 0, periodic and symmetric, two types of size and result; the size is a constant."""
    a, b, c = coefficients
    for size in (0, 2, 7, 10):
        for periodic in (True, False):
            angles = [2 * math.pi * n / (size if periodic else size - 1) for n in range(size)]
            want = np.array([a - b * math.cos(t) + c * math.cos(2 * t) for t in angles])
            name = f"size_{size}_{'periodic' if periodic else 'symmetric'}"
            given = (np.array(size, np.int32 if size == 7 else np.int64),)
            yield Case(name, cls(periodic=periodic), given, (want.astype(np.float32),), constants=(0,))
            double = cls(periodic=periodic, output_datatype=DType.FLOAT64)
            yield Case(f"{name}_float64", double, given, (want,), rtol=1e-12, atol=1e-12, constants=(0,))
