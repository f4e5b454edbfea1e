"""Cases of ReverseSequence: step by step."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.reverse_sequence import ReverseSequence


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both orders of the axes, lengths from 0 to all, further dimensions, integers, batch 0."""
    for batch, time in ((1, 0), (0, 1)):
        op = ReverseSequence(batch_axis=batch, time_axis=time)
        x = rng.standard_normal((5, 5, 3)).astype(np.float32)
        lengths = np.array([0, 1, 3, 5, 2])
        expected = x.copy()
        for b, length in enumerate(lengths):
            for t in range(length):
                source = (t, b) if time == 0 else (b, t)
                target = (length - 1 - t, b) if time == 0 else (b, length - 1 - t)
                expected[target] = x[source]
        yield Case(f"batch_axis_{batch}", op, (x, lengths), (expected,))
    ints = np.array([[1, 2], [3, 4]], np.int32)
    yield Case("int32", ReverseSequence(), (ints, np.array([2, 1])), (np.array([[3, 2], [1, 4]], np.int32),))
    empty = np.zeros((4, 0), np.float32)
    yield Case("batch_0", ReverseSequence(), (empty, np.zeros(0, np.int64)), (empty,))
