"""Cases of BipolarQuant."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_qonnx.bipolar_quant import BipolarQuant
from dovetail_ops_qonnx.cases._numbers import floats


def bipolar_quant(rng: np.random.Generator) -> Iterator[Case]:
    """Signs, scales of channels, batch 0."""
    x = floats([[-2, -0.0, 0], [1e-9, -1e-9, 7]])
    signs = floats([[-1, 1, 1], [1, -1, 1]])
    yield Case("signs", BipolarQuant(), (x, floats(0.3)), (floats(0.3) * signs,))
    scale = floats([[0.5], [2]])
    yield Case("channels", BipolarQuant(), (x, scale), (scale * signs,), constants=(1,))
    yield Case("batch_0", BipolarQuant(), (x[:0], floats(2)), (x[:0],))
