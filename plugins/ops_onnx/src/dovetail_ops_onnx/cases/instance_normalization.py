"""Cases of InstanceNormalization: plane by plane in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.instance_normalization import InstanceNormalization


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One to three spatial axes, epsilon, batch 0, float16."""
    for shape in ((2, 3, 5, 7), (1, 2, 9), (2, 2, 3, 2, 3)):
        x = rng.standard_normal(shape).astype(np.float32)
        scale, b = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(2))
        yield Case(f"rank_{len(shape)}", InstanceNormalization(), (x, scale, b), (_planes(x, scale, b, 1e-5),))
    yield Case("epsilon", InstanceNormalization(epsilon=0.5), (x, scale, b), (_planes(x, scale, b, 0.5),))
    yield Case("batch_0", InstanceNormalization(), (x[:0], scale, b), (x[:0].copy(),))
    half = [a.astype(np.float16) for a in (x, scale, b)]
    yield Case("float16", InstanceNormalization(), tuple(half), (_planes(half[0], half[1], half[2], 1e-5),), rtol=3e-3, atol=3e-3)


def _planes(x: NDArray[Any], scale: NDArray[Any], b: NDArray[Any], epsilon: float) -> NDArray[Any]:
    y = np.zeros(x.shape)
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            plane = x[n, c].astype(np.float64)
            centred = plane - plane.sum() / plane.size
            y[n, c] = centred / np.sqrt((centred**2).sum() / plane.size + epsilon) * float(scale[c]) + float(b[c])
    return y.astype(x.dtype)
