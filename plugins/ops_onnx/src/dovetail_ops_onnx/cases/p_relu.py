"""Cases of PRelu: by hand and NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import typed
from dovetail_ops_onnx.p_relu import PRelu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Slopes for each element, each channel and all; integers, float16, batch 0."""
    x, slope = rng.standard_normal((2, 3, 5)).astype(np.float32), rng.standard_normal((2, 3, 5)).astype(np.float32)
    yield typed("each_element", PRelu(), lambda v, s: np.where(v < 0, v * s, v), x, slope)
    yield typed("each_channel", PRelu(), lambda v, s: np.where(v < 0, v * s, v), x, slope[0, :, :1])
    yield typed("one", PRelu(), lambda v, s: np.where(v < 0, v * s, v), x, slope[0, 0, 0].reshape(1))
    yield typed("scalar", PRelu(), lambda v, s: np.where(v < 0, v * s, v), x[0, 0, :1].reshape(()), np.array(0.25, np.float32))
    yield typed("batch_0", PRelu(), lambda v, s: np.where(v < 0, v * s, v), x[:0], slope[0])
    yield typed("float16", PRelu(), lambda v, s: np.where(v < 0, v * s, v), x.astype(np.float16), np.array([0.5], np.float16))
    lost = np.array([np.nan, np.inf, -np.inf, np.nan, 2, 2], np.float32)
    given = np.array([1, 2, 3, -1, np.nan, -np.inf], np.float32)
    want = np.array([1, 2, 3, np.nan, np.nan, -np.inf], np.float32)
    yield Case("slopes_that_are_not_finite", PRelu(), (given, lost), (want,))
    yield Case("int32", PRelu(), (np.array([-3, 0, 4], np.int32), np.array([2], np.int32)), (np.array([-6, 0, 4], np.int32),))
