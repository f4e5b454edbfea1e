"""Cases of Clip: Python's min and max."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.clip import Clip, Clip_6


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both limits, each alone, none, crossed, as data and constants; NaN and infinities, integers, float16, the older class."""
    x = rng.uniform(-9, 9, (3, 5)).astype(np.float32)
    low, high = np.array(-1.5, np.float32), np.array(6, np.float32)
    for kind, constants in (("data", ()), ("constant", (1, 2))):
        yield Case(f"both_{kind}", Clip(), (x, low, high), (_clipped(x, -1.5, 6),), constants=constants)
        yield Case(f"min_{kind}", Clip(), (x, low), (_clipped(x, -1.5, np.inf),), constants=constants[:1])
        yield Case(f"max_{kind}", Clip(), (x, None, high), (_clipped(x, -np.inf, 6),), constants=constants[1:])
        yield Case(f"crossed_{kind}", Clip(), (x, high, low), (np.full_like(x, -1.5),), constants=constants)
    yield Case("none", Clip(), (x,), (x,))
    special = np.array([np.nan, np.inf, -np.inf, -0.5], np.float32)
    yield Case("special", Clip(), (special, low, high), (np.array([np.nan, 6, -1.5, -0.5], np.float32),), constants=(1, 2))
    largest = np.finfo(np.float32).max
    yield Case("finite_by_default", Clip(), (special,), (np.array([np.nan, largest, -largest, -0.5], np.float32),))
    small = np.array([-128, -3, 0, 127], np.int8)
    yield Case("int8", Clip(), (small, np.array(-3, np.int8), np.array(5, np.int8)), (np.array([-3, -3, 0, 5], np.int8),))
    big = np.array([2**64 - 1, 2**63, 3], np.uint64)
    yield Case("uint64", Clip(), (big, None, np.array(2**63 + 1, np.uint64)), (np.array([2**63 + 1, 2**63, 3], np.uint64),))
    half = np.array([-2, 0.5, 70], np.float16)
    limits = np.array(0, np.float16), np.array(6, np.float16)
    yield Case("float16", Clip(), (half, *limits), (np.array([0, 0.5, 6], np.float16),), constants=(1, 2))
    yield Case("batch_0", Clip(), (x[:0], low, high), (x[:0],), constants=(1, 2))
    yield Case("since_6", Clip_6(min=-1.5, max=6.0), (x,), (_clipped(x, -1.5, 6),))
    yield Case("since_6_min", Clip_6(min=0.0), (x,), (_clipped(x, 0, np.inf),))
    yield Case("since_6_float16", Clip_6(), (half,), (half,))
    yield Case("since_6_float64", Clip_6(max=2.0), (x.astype(np.float64),), (_clipped(x, -np.inf, 2).astype(np.float64),))


def _clipped(x: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    return np.array([[min(max(v, low), high) for v in row] for row in x], x.dtype)
