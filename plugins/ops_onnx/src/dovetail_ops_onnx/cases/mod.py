"""Cases of Mod: Python's % and math.fmod."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.mod import Mod, Mod_10


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Signs of integers and floats with and without fmod, division by 0, broadcasting, batch 0, the older class."""
    a, b = np.array([7, -7, 7, -7, 6, 0], np.int32), np.array([2, 2, -2, -2, 3, 5], np.int32)
    floored: Any = [int(p) % int(q) for p, q in zip(a, b, strict=True)]
    truncated: Any = [int(math.fmod(p, q)) for p, q in zip(a, b, strict=True)]
    for cls in (Mod, Mod_10):
        yield Case(f"int32_since_{cls.since}", cls(), (a, b), (np.array(floored, np.int32),))
        yield Case(f"int32_fmod_since_{cls.since}", cls(fmod=True), (a, b), (np.array(truncated, np.int32),))
        x, y = rng.uniform(-9, 9, (3, 5)).astype(np.float32), np.array([[2.5], [-1.25], [4]], np.float32)
        expected = np.vectorize(math.fmod)(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
        yield Case(f"float32_fmod_since_{cls.since}", cls(fmod=True), (x, y), (expected,))
    special = np.array([5.5, -5.5, np.inf, 1, -1], np.float32), np.array([-2, 2, 1, np.inf, np.inf], np.float32)
    yield Case("float32", Mod(), special, (np.array([-0.5, 0.5, np.nan, 1, np.inf], np.float32),))
    low = np.array([-128, 5, -5], np.int8), np.array([-1, 0, 0], np.int8)
    yield Case("int8_without_a_quotient", Mod(), low, (np.zeros(3, np.int8),))
    yield Case("int8_without_a_quotient_fmod", Mod(fmod=True), low, (np.zeros(3, np.int8),))
    yield Case("uint64", Mod(), (np.array([2**64 - 1], np.uint64), np.array([10], np.uint64)), (np.array([5], np.uint64),))
    yield Case("batch_0", Mod(), (a[:0], b[:1]), (a[:0],))
