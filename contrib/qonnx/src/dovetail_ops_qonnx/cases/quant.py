"""Cases of Quant: small tables, and the formula in float64 with scales that are powers of 2."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_qonnx.cases._numbers import floats, numbers
from dovetail_ops_qonnx.quant import Quant

_HALVES = floats([-2.5, -1.75, -1.5, -0.25, 0, 0.25, 0.5, 1.5, 1.75, 2.5])
_MODES = {
    "round": [-2, -2, -2, 0, 0, 0, 0, 2, 2, 2],
    "HALF_EVEN": [-2, -2, -2, 0, 0, 0, 0, 2, 2, 2],
    "CEIL": [-2, -1, -1, 0, 0, 1, 1, 2, 2, 3],
    "FLOOR": [-3, -2, -2, -1, 0, 0, 0, 1, 1, 2],
    "UP": [-3, -2, -2, -1, 0, 1, 1, 2, 2, 3],
    "DOWN": [-2, -1, -1, 0, 0, 0, 0, 1, 1, 2],
    "HALF_UP": [-3, -2, -2, 0, 0, 0, 1, 2, 2, 3],
    "HALF_DOWN": [-2, -2, -1, 0, 0, 0, 0, 1, 2, 2],
}
_LIMITS = {(True, False): (-8, 7), (True, True): (-7, 7), (False, False): (0, 15), (False, True): (0, 14)}
"""Of 4 bits: (signed, narrow) -> least and greatest."""


def quant(rng: np.random.Generator) -> Iterator[Case]:
    """Rounding modes, limits, one bit, parameters of channels, float16, batch 0."""
    one, zero, bits = numbers(1, 0, 4)
    constants = (1, 2, 3)
    for mode, stored in _MODES.items():
        given = (_HALVES, one, zero, bits)
        yield Case(f"rounding_{mode}", Quant(rounding_mode=mode), given, (floats(stored),), constants=constants)
    for (signed, narrow), (low, high) in _LIMITS.items():
        x = np.arange(-20, 21, dtype=np.float32)
        op, expected = Quant(signed=signed, narrow=narrow), np.clip(x, low, high) / 4
        yield Case(f"limits_{low}_{high}", op, (x / 4, one / 4, zero, bits), (expected,), constants=constants)
    yield Case("one_bit", Quant(), (floats([-3, 0, 0.5]), one / 2, zero, one), (floats([-0.5, 0.5, 0.5]),), constants=constants)
    x = rng.uniform(-3, 3, (2, 3, 5)).astype(np.float32)
    scale, shift = floats([[0.25], [0.5], [0.125]]), floats([[1], [0], [-2]])
    whole = np.rint(np.clip(x.astype(np.float64) / scale + shift, -15, 15))
    expected = ((whole - shift) * scale).astype(np.float32)
    yield Case("channels", Quant(), (x, scale, shift, np.asarray(5, np.int32)), (expected,), constants=constants)
    yield Case("computed_scale", Quant(), (x, scale, shift, np.asarray(5, np.int32)), (expected,), constants=(3,))
    half = tuple(a.astype(np.float16) for a in (x, scale, shift))
    whole = np.rint(np.clip(half[0].astype(np.float64) / scale + shift, -15, 15))
    yield Case(
        "float16",
        Quant(),
        (*half, np.asarray(5, np.int32)),
        (((whole - shift) * scale).astype(np.float16),),
        constants=constants,
    )
    yield Case("batch_0", Quant(), (x[:0], scale, shift, bits), (x[:0],), constants=constants)
