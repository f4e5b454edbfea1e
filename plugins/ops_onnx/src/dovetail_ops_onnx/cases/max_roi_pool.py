"""Cases of MaxRoiPool: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.max_roi_pool import MaxRoiPool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole and partial regions, a scale, a region outside, no region."""
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    op = MaxRoiPool(pooled_shape=(2, 2))
    whole = np.array([[0, 0, 0, 3, 3]], np.float32)
    yield Case("whole", op, (x, whole), (np.array([[[[6, 8], [14, 16]]]], np.float32),))
    part = np.array([[0, 1, 1, 3, 2]], np.float32)  # columns 1 to 3 in two parts that share one, rows 1 and 2
    yield Case("part", op, (x, part), (np.array([[[[7, 8], [11, 12]]]], np.float32),))
    scaled = MaxRoiPool(pooled_shape=(1, 1), spatial_scale=0.5)
    yield Case("scale", scaled, (x, np.array([[0, 2, 2, 5, 4]], np.float32)), (np.array([[[[12]]]], np.float32),))
    line = np.arange(1, 41, dtype=np.float32).reshape(1, 1, 1, 40)
    want = np.array([[[[5, 9, 13, 17, 21, 25, 29]]]], np.float32)  # 29 columns in seven parts: the last ends at 29, not beyond
    seven = MaxRoiPool(pooled_shape=(1, 7))
    yield Case("whole_bounds", seven, (line, np.array([[0, 0, 0, 28, 0]], np.float32)), (want,))
    outside = np.array([[0, 9, 9, 9, 9]], np.float32)
    yield Case("outside", op, (x, outside), (np.zeros((1, 1, 2, 2), np.float32),))
    yield Case("batch_0", op, (x, whole[:0]), (np.zeros((0, 1, 2, 2), np.float32),))
