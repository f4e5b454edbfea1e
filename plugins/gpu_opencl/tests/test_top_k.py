"""TopK as GPUs run it, where several work items count for an element of a long line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize(("dims", "axis"), [((3, 1025), 1), ((2, 4200), 1), ((700, 3), 0), ((5, 31), 1)])
@pytest.mark.parametrize("largest", [0, 1])
def test_ranks_of_long_lines(
    dims: tuple[int, int], axis: int, largest: int, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """Ties, NaN and lines that the parts do not divide, against a stable sort."""
    x = rng.integers(-40, 40, dims).astype(np.float32)
    x[tuple(rng.integers(0, n, 5) for n in dims)] = np.nan
    keys = np.where(np.isnan(x), np.inf, x)
    order = np.argsort(-keys if largest else keys, axis=axis, kind="stable")
    kept = np.take(order, range(17), axis)
    op = bench.op("TopK", axis=axis, largest=largest)
    graph, feeds = bench.single(op, [x, np.array([17])], (1,), 2)
    values, indices = bench.run(kind_device("GPU"), graph, feeds)
    np.testing.assert_array_equal(indices, kept)
    np.testing.assert_array_equal(values, np.take_along_axis(x, kept, axis))
