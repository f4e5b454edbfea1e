"""Cases of IsInf: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.is_inf import IsInf


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every pair of signs to look for, each float type, a scalar, batch 0."""
    values = np.array([[1, np.inf], [-np.inf, np.nan], [0, -3]])
    positive = np.array([[False, True], [False, False], [False, False]])
    negative = np.array([[False, False], [True, False], [False, False]])
    for dtype in (np.float32, np.float16, np.float64):
        x = values.astype(dtype)
        name = np.dtype(dtype).name
        yield Case(f"{name}_both", IsInf(), (x,), (positive | negative,))
        yield Case(f"{name}_positive", IsInf(detect_negative=False), (x,), (positive,))
        yield Case(f"{name}_negative", IsInf(detect_positive=False), (x,), (negative,))
        yield Case(f"{name}_neither", IsInf(detect_positive=False, detect_negative=False), (x,), (positive & negative,))
    yield Case("scalar", IsInf(), (np.array(np.inf, np.float32),), (np.array(True),))
    yield Case("batch_0", IsInf(), (np.zeros((0, 3), np.float32),), (np.zeros((0, 3), np.bool_),))
