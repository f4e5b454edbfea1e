"""Cases of HannWindow: Python's cosine."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.hann_window import HannWindow
from dovetail.testing.case import Case
from dovetail.testing.cases._signal_window import windows


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `windows`."""
    yield from windows(HannWindow, (0.5, 0.5, 0.0))
