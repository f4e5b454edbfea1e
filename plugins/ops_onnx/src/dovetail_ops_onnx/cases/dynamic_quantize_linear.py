"""Cases of DynamicQuantizeLinear, by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both signs, one sign (0 belongs to the range), zeros, no elements."""
    for name, x, scale, zero in (
        ("both_signs", [-1, 0, 1.5, 4.1], 0.02, 50),
        ("positive", [1, 2.55], 0.01, 0),
        ("negative", [-5.1, -2], 0.02, 255),
        ("zeros", [0, 0], 1 / 255, 0),
    ):
        y = [min(max(round(v / scale) + zero, 0), 255) for v in x]
        want = (np.array(y, np.uint8), np.array(scale, np.float32), np.array(zero, np.uint8))
        yield Case(name, DynamicQuantizeLinear(), (np.array(x, np.float32),), want)
    none = (np.zeros((0, 3), np.uint8), np.array(1 / 255, np.float32), np.zeros((), np.uint8))
    yield Case("batch_0", DynamicQuantizeLinear(), (np.zeros((0, 3), np.float32),), none)
    steps = rng.uniform(0, 1, (3, 17)).astype(np.float32)
    steps[0, 0] = 255
    want = (np.rint(steps).astype(np.uint8), np.array(1, np.float32), np.zeros((), np.uint8))
    yield Case("scale_1", DynamicQuantizeLinear(), (steps,), want)
