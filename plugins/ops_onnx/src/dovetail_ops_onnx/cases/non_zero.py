"""Cases of NonZero: element by element."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.non_zero import NonZero


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Several ranks and types, all zero, none zero, NaN, batch 0."""
    for name, x in (
        ("float32", rng.integers(-1, 2, (3, 4, 5)).astype(np.float32)),
        ("int32", rng.integers(0, 2, (7,)).astype(np.int32)),
        ("bool", rng.integers(0, 2, (3, 3)).astype(np.bool_)),
        ("nan", np.array([0.0, np.nan, -0.0, 2.0], np.float32)),
        ("all_zero", np.zeros((2, 2), np.float32)),
        ("none_zero", np.ones((2, 3), np.float32)),
        ("batch_0", np.zeros((0, 3), np.float32)),
    ):
        found = [place for place in product(*(range(size) for size in x.shape)) if x[place] != 0]
        yield Case(name, NonZero(), (x,), (np.array(found, np.int64).reshape(-1, x.ndim).T.copy(),))
