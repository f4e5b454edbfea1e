"""Cases of ThresholdedRelu: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.thresholded_relu import ThresholdedRelu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default and another threshold."""
    yield from unary(rng, ThresholdedRelu(), lambda x: x * ((x > 1) | np.isnan(x)) if np.isfinite(x).all() else _slowly(x, 1))
    special = np.array([np.nan, np.inf, -np.inf, 1, 1.5], np.float32)
    yield Case("nan_and_infinities", ThresholdedRelu(), (special,), (np.array([np.nan, np.inf, 0, 0, 1.5], np.float32),))
    yield from unary(rng, ThresholdedRelu(alpha=-0.5), lambda x: _slowly(x, -0.5))


def _slowly(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.array([v if v > alpha or v != v else 0.0 for v in x.reshape(-1)]).reshape(x.shape)
