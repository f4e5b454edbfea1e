"""Cases of Slice: Python's own slices."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.slice import Slice, Slice_1

_FAR = 2**63 - 1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Negative and far bounds, steps both ways, axes left out, negative and unordered, empty results, int32, the older class."""
    x = rng.standard_normal((4, 5, 7)).astype(np.float32)
    rows = [
        ("axes_left_out", x[1:3, 0:4], [1, 0], [3, 4], None, None),
        ("unordered_axes", x[1:2, :, 3:6], [3, 1], [6, 2], [2, 0], None),
        ("negative_axes", x[:, 1:-1], [1], [-1], [-2], None),
        ("far_end", x[..., 2:], [2], [_FAR], [2], None),
        ("far_start", x[:, :3], [-_FAR], [3], [1], None),
        ("negative_start", x[-2:], [-2], [_FAR], [0], None),
        ("steps", x[::2, 1:5:3], [0, 1], [4, 5], [0, 1], [2, 3]),
        ("backwards", x[:, ::-1], [_FAR], [-_FAR - 1], [1], [-1]),
        ("backwards_with_bounds", x[..., -2:0:-2], [-2], [0], [-1], [-2]),
        ("backwards_same_size", x[::-1, :, :], [-1], [-_FAR], [0], [-1]),
        ("backwards_from_before_the_start", x[:, :1], [-9], [-_FAR], [1], [-1]),
        ("backwards_from_the_start", x[:1], [-4], [-_FAR], [0], [-2]),
        ("far_step", x[1:2, :, 2:3], [1, 2], [_FAR, _FAR], [0, 2], [_FAR, 2**31]),
        ("far_step_backwards", x[:, 3:4, 6:], [3, -1], [-_FAR, 0], [1, 2], [-_FAR - 1, -(2**31)]),
        ("empty", x[3:1], [3], [1], [0], None),
        ("start_past_the_end", x[:, 9:12], [9], [12], [1], None),
        ("everything", x, [0, 0], [9, 9], [0, 1], [1, 1]),
        ("no_axis", x, [], [], [], None),
    ]
    for name, expected, *bounds in rows:
        inputs = (x, *(None if b is None else np.array(b, np.int64) for b in bounds))
        constants = tuple(i for i, a in enumerate(inputs) if i and a is not None)
        yield Case(name, Slice(), inputs, (expected,), constants=constants)
        if bounds[3] is None:
            yield Case(f"{name}_since_1", Slice_1(), inputs[:4], (expected,), constants=constants)
    short = tuple(np.array([v], np.int32) for v in (1, 6, 2, 2))
    yield Case("int32_bounds", Slice(), (x, *short), (x[..., 1:6:2],), constants=(1, 2, 3, 4))
    yield Case("backwards_batch_0", Slice(), (x[:0], *(np.array([v]) for v in (-9, -9, 0, -1))), (x[:0],), constants=(1, 2, 3, 4))
    yield Case("batch_0", Slice(), (x[:0], np.array([1]), np.array([3]), np.array([1])), (x[:0, 1:3],), constants=(1, 2, 3))
