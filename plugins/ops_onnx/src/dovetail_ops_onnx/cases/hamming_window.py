"""Cases of HammingWindow: Python's cosine."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._signal_window import windows
from dovetail_ops_onnx.hamming_window import HammingWindow


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `windows`."""
    yield from windows(HammingWindow, (25 / 46, 1 - 25 / 46, 0.0))
