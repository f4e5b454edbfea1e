"""Cases of CastLike: conversions by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cast_like import CastLike


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Floats to integers and back, bool, strings, batch 0; the content of the target does not matter."""
    x = np.array([[-1.75, 0, 2.5]], np.float32)
    yield Case("int32", CastLike(), (x, np.array([7], np.int32)), (np.array([[-1, 0, 2]], np.int32),))
    yield Case("bool", CastLike(), (x, np.zeros((2, 2), np.bool_)), (np.array([[True, False, True]]),))
    yield Case("float16", CastLike(), (x, np.array(1, np.float16)), (x.astype(np.float16),))
    yield Case("float64", CastLike(), (x, np.zeros(0, np.float64)), (x.astype(np.float64),))
    yield Case("same", CastLike(), (x, x), (x,))
    yield Case("batch_0", CastLike(), (x[:0], np.array(1, np.int64)), (np.zeros((0, 3), np.int64),))
