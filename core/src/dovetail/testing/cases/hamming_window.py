"""Cases of HammingWindow: Python's cosine."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.hamming_window import HammingWindow
from dovetail.testing.case import Case
from dovetail.testing.cases._signal_window import windows


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `windows`."""
    yield from windows(HammingWindow, (25 / 46, 1 - 25 / 46, 0.0))
