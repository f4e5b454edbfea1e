"""Cases of HannWindow: Python's cosine."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._signal_window import windows
from dovetail_ops_onnx.hann_window import HannWindow


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `windows`."""
    yield from windows(HannWindow, (0.5, 0.5, 0.0))
