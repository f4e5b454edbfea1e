"""Cases of MaxUnpool: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.max_unpool import MaxUnpool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """A plane, a larger output, a line with pads, batch 0."""
    x, index = np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[5, 7], [13, 15]]]])
    want = np.zeros((1, 1, 4, 4), np.float32)
    want[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]] = [1, 2, 3, 4]
    op = MaxUnpool(kernel_shape=(2, 2), strides=(2, 2))
    yield Case("plane", op, (x, index), (want,))
    larger = np.zeros((1, 1, 5, 6), np.float32)
    larger[:, :, :4, :4] = want
    yield Case("output_shape", op, (x, index, np.array([1, 1, 5, 6])), (larger,), constants=(2,))
    line = MaxUnpool(kernel_shape=(3,), strides=(2,), pads=(1, 1))
    values, places = np.array([[[8.0, 9.0]]]), np.array([[[2, 0]]])
    yield Case("pads", line, (values, places), (np.array([[[9.0, 0.0, 8.0]]]),))
    yield Case("batch_0", op, (x[:0], index[:0]), (want[:0],))
