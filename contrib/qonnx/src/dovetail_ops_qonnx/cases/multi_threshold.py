"""Cases of MultiThreshold, by comparing each number with each threshold."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_qonnx.cases._numbers import floats
from dovetail_ops_qonnx.multi_threshold import MultiThreshold


def multi_threshold(rng: np.random.Generator) -> Iterator[Case]:
    """A table, channels of each layout, thresholds of all channels alike, batch 0."""
    x = floats([[-1, 0], [0.5, 2], [3, np.nan]])
    steps = floats([[0, 0.5, 1], [2, 1, 0]])
    yield Case("table", MultiThreshold(), (x, steps), (floats([[0, 1], [2, 3], [3, 0]]),), constants=(1,))
    scaled = MultiThreshold(out_scale=0.5, out_bias=-1.0)
    yield Case("scaled", scaled, (x, steps[:1]), (floats([[-1, -0.5], [0, 0.5], [0.5, -1]]),), constants=(1,))
    for layout, axis, shape in (("NCHW", 1, (2, 3, 4, 5)), ("", 1, (2, 3, 4, 5)), ("NHWC", 3, (2, 4, 5, 3)), ("", 2, (2, 4, 3))):
        y = rng.integers(-4, 5, shape).astype(np.float32)
        own = np.sort(rng.integers(-4, 5, (3, 7)), axis=1).astype(np.float32)
        reached = np.moveaxis(y, axis, -1)[..., None] >= own
        expected = np.moveaxis(reached.sum(-1), -1, axis).astype(np.float32)
        yield Case(f"channels_{layout}_{axis}", MultiThreshold(data_layout=layout), (y, own), (expected,))
    yield Case("batch_0", MultiThreshold(), (x[:0], steps), (x[:0],))
