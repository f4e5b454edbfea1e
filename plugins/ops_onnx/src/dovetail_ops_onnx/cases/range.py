"""Cases of Range: by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.range import Range


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both directions, a last step that does not fit, an empty range, every type, bounds far apart from zero."""
    rows: list[tuple[str, Any, tuple[float, float, float], list[float]]] = [
        ("int32", np.int32, (3, 9, 3), [3, 6]),
        ("int64_down", np.int64, (10, 4, -2), [10, 8, 6]),
        ("int64_far", np.int64, (2**63 - 3, 2**63 - 1, 1), [2**63 - 3, 2**63 - 2]),
        ("int16_does_not_fit", np.int16, (1, 10, 4), [1, 5, 9]),
        ("empty", np.int64, (5, 5, 1), []),
        ("wrong_way", np.float32, (5, 9, -1), []),
        ("float32", np.float32, (0, 1, 0.25), [0, 0.25, 0.5, 0.75]),
        ("float32_down", np.float32, (1, -1.1, -0.5), [1, 0.5, 0, -0.5, -1]),
        ("float64", np.float64, (0, 1, 0.3), [0, 0.3, 0.6, 0.8999999999999999]),
        ("float16", np.float16, (2048, 2054, 2), [2048, 2050, 2052]),
    ]
    for name, dtype, bounds, expected in rows:
        inputs = tuple(np.array(v, dtype) for v in bounds)
        yield Case(name, Range(), inputs, (np.array(expected, dtype),), constants=(0, 1, 2))
