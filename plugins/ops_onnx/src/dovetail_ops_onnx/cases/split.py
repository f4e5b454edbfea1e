"""Cases of Split: written as slices."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.split import Split, Split_2, Split_13


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Sizes given, equal parts, a smaller and an empty last part, size 0, one part, negative axes, batch 0, the older classes."""
    x = rng.standard_normal((2, 7, 6)).astype(np.float32)
    sizes = np.array([2, 0, 5])
    three = x[:, :2], x[:, 2:2], x[:, 2:]
    yield Case("sizes", Split(axis=1), (x, sizes), three, constants=(1,))
    yield Case("equal_parts", Split(axis=-1, num_outputs=3), (x,), (x[..., :2], x[..., 2:4], x[..., 4:]))
    yield Case("smaller_last_part", Split(axis=-2, num_outputs=3), (x,), (x[:, :3], x[:, 3:6], x[:, 6:]))
    yield Case("empty_last_part", Split(axis=2, num_outputs=4), (x,), (x[..., :2], x[..., 2:4], x[..., 4:], x[..., 6:]))
    yield Case("default_axis", Split(num_outputs=2), (x,), (x[:1], x[1:]))
    yield Case("one_part", Split(axis=1, num_outputs=1), (x,), (x,))
    yield Case("batch_0", Split(axis=1, num_outputs=7), (x[:0],), tuple(x[:0, i : i + 1] for i in range(7)))
    for cls in (Split_13, Split_2):
        yield Case(f"sizes_since_{cls.since}", cls(axis=1, num_outputs=3), (x, sizes), three, constants=(1,))
        yield Case(f"equal_parts_since_{cls.since}", cls(axis=2, num_outputs=2), (x,), (x[..., :3], x[..., 3:]))
