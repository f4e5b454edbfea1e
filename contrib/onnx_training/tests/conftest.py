"""A fixture: derivatives by central differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]


Slopes = Callable[[Callable[[dict[str, Array]], Array], dict[str, Array]], dict[str, Array]]


@pytest.fixture
def slopes() -> Slopes:
    """`slopes(f, at)`: the derivatives of a scalar function by central differences, in float64."""

    def run(f: Callable[[dict[str, Array]], Array], at: dict[str, Array]) -> dict[str, Array]:
        found = {name: np.zeros_like(a) for name, a in at.items()}
        step = 1e-6
        for name, a in at.items():
            for place in np.ndindex(*a.shape):
                ends = []
                for sign in (1, -1):
                    moved = a.copy()
                    moved[place] += sign * step
                    ends.append(float(f({**at, name: moved})))
                found[name][place] = (ends[0] - ends[1]) / (2 * step)
        return found

    return run
