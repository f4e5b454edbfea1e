"""Cases of Trunc, worked by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_qonnx.cases._numbers import floats, numbers
from dovetail_ops_qonnx.trunc import Trunc, Trunc_1

_STORED = floats([-9, -8, -5, -1, 0, 3, 4, 6, 9, 14])


def trunc(rng: np.random.Generator) -> Iterator[Case]:
    """Stored numbers of 5 bits with scale 1/2 to 3 bits with scale 2: a quarter of each, limited."""
    parameters = numbers(0.5, 0, 5, 2, 3)
    for op, expected in (
        (Trunc(), [-3, -2, -2, -1, 0, 0, 1, 1, 2, 3]),
        (Trunc(rounding_mode="ROUND"), [-2, -2, -1, 0, 0, 1, 1, 2, 2, 3]),
        (Trunc(signed=False), [0, 0, 0, 0, 0, 0, 1, 1, 2, 3]),
    ):
        name = f"{op.rounding_mode.lower()}_{'signed' if op.signed else 'unsigned'}"
        yield Case(name, op, (_STORED / 2, *parameters), (2 * floats(expected),), constants=(1, 2, 3, 4, 5))
    many = numbers(0.5, 0, 5, 1, 3)
    halved = np.clip(np.floor(_STORED.astype(np.float64) / 2), -3, 3).astype(np.float32)
    yield Case("narrow", Trunc(narrow=True), (_STORED / 2, *many), (halved,), constants=(1, 2, 3, 4, 5))
    shifted = (floats(0.5), floats(4), *parameters[2:])
    moved = np.clip(np.floor((_STORED.astype(np.float64) + 4) / 4), -4, 3) - 1
    yield Case("zero_point", Trunc(), (_STORED / 2, *shifted), ((2 * moved).astype(np.float32),), constants=(1, 2, 3, 4, 5))


def trunc_1(rng: np.random.Generator) -> Iterator[Case]:
    """The scale of the input, and no limits."""
    parameters = numbers(0.5, 0, 5, 3)
    for mode, expected in (("FLOOR", [-3, -2, -2, -1, 0, 0, 1, 1, 2, 3]), ("ROUND", [-2, -2, -1, 0, 0, 1, 1, 2, 2, 4])):
        op = Trunc_1(rounding_mode=mode)
        yield Case(mode.lower(), op, (_STORED / 2, *parameters), (floats(expected) / 2,), constants=(1, 2, 3, 4))
