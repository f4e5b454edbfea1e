"""Cases of MeanVarianceNormalization: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.mean_variance_normalization import MeanVarianceNormalization


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The default axes, others from both ends, a constant, float64."""
    for name, shape, attributes in (
        ("default", (3, 3, 5, 2), {}),
        ("across", (2, 3, 4, 5), {"axes": (0, 1, 2, 3)}),
        ("last", (2, 3, 7), {"axes": (-1,)}),
    ):
        x = rng.standard_normal(shape).astype(np.float32) * 3 + 1
        axes = attributes.get("axes", (0, 2, 3))
        wide = x.astype(np.float64)
        want = (wide - wide.mean(axes, keepdims=True)) / (wide.std(axes, keepdims=True) + 1e-9)
        yield Case(name, MeanVarianceNormalization(**attributes), (x,), (want.astype(np.float32),), rtol=1e-4, atol=1e-5)
    yield Case(
        "constant", MeanVarianceNormalization(), (np.full((1, 2, 2, 2), 3, np.float32),), (np.zeros((1, 2, 2, 2), np.float32),)
    )
    wide = rng.standard_normal((2, 2, 3, 3))
    want = (wide - wide.mean((0, 2, 3), keepdims=True)) / (wide.std((0, 2, 3), keepdims=True) + 1e-9)
    yield Case("float64", MeanVarianceNormalization(), (wide,), (want,), rtol=1e-12, atol=1e-12)
