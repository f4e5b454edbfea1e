"""Cases of BlackmanWindow: Python's cosine."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.blackman_window import BlackmanWindow
from dovetail_ops_onnx.cases._signal_window import windows


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `windows`."""
    yield from windows(BlackmanWindow, (0.42, 0.5, 0.08))
