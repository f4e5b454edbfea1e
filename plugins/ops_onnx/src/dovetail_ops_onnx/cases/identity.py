"""Cases of Identity: the output is the input."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.identity import Identity


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Floats with NaN, integers, bools, strings, a scalar, batch 0."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    x[0, 0, :2] = np.nan, -0.0
    every: dict[str, NDArray[Any]] = {
        "float32": x,
        "float64": x.astype(np.float64),
        "int64": np.array([2**63 - 1, -1]),
        "bool": x > 0,
    }
    every |= {"string": np.array(["a", ""], object), "scalar": np.array(7, np.uint8), "batch_0": x[:0]}
    for name, array in every.items():
        yield Case(name, Identity(), (array,), (array,))
