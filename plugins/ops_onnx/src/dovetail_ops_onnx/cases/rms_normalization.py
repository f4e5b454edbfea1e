"""Cases of RMSNormalization: row by row in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.rms_normalization import RMSNormalization


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each axis, scale that broadcasts, epsilon, mixed types, batch 0, float16."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    for axis in (0, 1, 2):
        scale = rng.standard_normal(x.shape[axis:]).astype(np.float32)
        yield Case(f"axis_{axis}", RMSNormalization(axis=axis), (x, scale), (_rows(x, scale, axis, 1e-5),))
    yield Case("epsilon", RMSNormalization(epsilon=0.5), (x, scale), (_rows(x, scale, 2, 0.5),))
    two = np.array([2], np.float32)
    yield Case("scale_broadcasts", RMSNormalization(axis=1), (x, two), (_rows(x, two, 1, 1e-5),))
    half = x.astype(np.float16)
    want = _rows(half, scale, 2, 1e-5)
    yield Case("float16_input_float32_scale", RMSNormalization(), (half, scale), (want,))
    yield Case(
        "float16", RMSNormalization(), (half, two.astype(np.float16)), (_rows(half, two.astype(np.float16), 2, 1e-5),), rtol=2e-3
    )
    yield Case("batch_0", RMSNormalization(), (x[:0], scale), (x[:0].copy(),))


def _rows(x: NDArray[Any], scale: NDArray[Any], axis: int, epsilon: float) -> NDArray[Any]:
    y = np.zeros(x.shape)
    for row in np.ndindex(*x.shape[:axis]):
        values = x[row].astype(np.float64)
        y[row] = values / np.sqrt((values**2).sum() / values.size + epsilon) * scale
    return y.astype(scale.dtype)
