"""Cases of Trilu: element by element."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.trilu import Trilu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both triangles of wide and high matrices, diagonals inside, outside and far outside, NaN, bools, batch 0."""
    wide, high = rng.standard_normal((2, 3, 5)).astype(np.float32), rng.integers(-99, 99, (5, 3))
    wide[0, 0, 0] = np.nan
    for upper in (True, False):
        side = "upper" if upper else "lower"
        yield Case(f"{side}_default", Trilu(upper=upper), (wide,), (_kept(wide, 0, upper),))
        for k in (0, 1, -2, 9, -9, 2**63 - 1, -(2**63)):
            yield Case(f"{side}_wide_{k}", Trilu(upper=upper), (wide, np.array(k)), (_kept(wide, k, upper),))
        yield Case(f"{side}_high", Trilu(upper=upper), (high, np.array([-1])), (_kept(high, -1, upper),))
    yield Case("bool", Trilu(), (np.ones((2, 2), np.bool_),), (np.array([[True, True], [False, True]]),))
    yield Case("batch_0", Trilu(), (wide[:0],), (wide[:0],))


def _kept(x: NDArray[Any], k: int, upper: bool) -> NDArray[Any]:
    kept = x.copy()
    for row, column in np.ndindex(*x.shape[-2:]):
        if column - row < k if upper else column - row > k:
            kept[..., row, column] = 0
    return kept
