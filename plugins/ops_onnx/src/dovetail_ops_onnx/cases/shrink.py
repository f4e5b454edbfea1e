"""Cases of Shrink: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.shrink import Shrink


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`: hard and soft shrinking; integers."""
    yield from unary(rng, Shrink(), lambda x: _slowly(x, 0.0, 0.5))
    yield from unary(rng, Shrink(bias=1.5, lambd=1.25), lambda x: _slowly(x, 1.5, 1.25))
    x = np.array([-3, -1, 0, 1, 2, 100], np.int32)
    yield Case("int32", Shrink(bias=1.0, lambd=1.0), (x,), (np.array([-2, 0, 0, 0, 1, 99], np.int32),))


def _slowly(x: np.ndarray, bias: float, lambd: float) -> np.ndarray:
    return np.array([v + bias if v < -lambd else v - bias if v > lambd else 0.0 for v in x.reshape(-1)]).reshape(x.shape)
