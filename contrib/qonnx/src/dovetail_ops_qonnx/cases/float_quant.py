"""Cases of FloatQuant: tables of small formats, and float8 and bfloat16 of ml_dtypes."""

from collections.abc import Iterator

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from dovetail.testing import Case
from dovetail_ops_qonnx.cases._numbers import floats, numbers
from dovetail_ops_qonnx.float_quant import FloatQuant


def float_quant(rng: np.random.Generator) -> Iterator[Case]:
    """Two bits of exponent and one of mantissa (float4), what is beyond the largest, float8, scales of channels."""
    constants = (1, 2, 3, 4, 5)
    one = floats(1)
    small = numbers(2, 1, 1, 6)
    x = floats([-9, -5, -2.4, -0.2, 0, 0.25, 0.3, 0.75, 1.2, 1.3, 2.5, 3.4, 3.6, 5.1, 7])
    rounded = floats([-6, -4, -2, 0, 0, 0, 0.5, 1, 1, 1.5, 2, 3, 4, 6, 6])
    yield Case("float4", FloatQuant(), (x, one, *small), (rounded,), constants=constants)
    yield Case(
        "float4_floor",
        FloatQuant(rounding_mode="FLOOR"),
        (x[4:], one, *small),
        (floats([0, 0, 0, 0.5, 1, 1, 2, 3, 3, 4, 6]),),
        constants=constants,
    )
    beyond = np.where(np.abs(x) > 6.9, np.copysign(floats(np.inf), x), rounded)
    infinite, nan = FloatQuant(saturation=False, has_inf=True), FloatQuant(saturation=False, has_nan=True)
    yield Case("infinities", infinite, (x, one, *small), (beyond,), constants=constants)
    yield Case(
        "nan", nan, (x, one, *small), (np.where(np.isinf(beyond), np.nan, rounded).astype(np.float32),), constants=constants
    )
    y = (rng.standard_normal((3, 40)) * np.exp2(rng.integers(-12, 8, (3, 40)))).astype(np.float32)
    for dtype, layout in ((float8_e4m3fn, (4, 3, 7, 448)), (float8_e5m2, (5, 2, 15, 57344)), (bfloat16, (8, 7, 127, 3.3e38))):
        parameters = numbers(*layout)
        fits = np.clip(y, -layout[3], layout[3])
        expected = fits.astype(dtype).astype(np.float32)
        yield Case(np.dtype(dtype).name, FloatQuant(), (y, one, *parameters), (expected,), constants=constants)
    scale = floats([[0.5], [2], [0.25]])
    expected = np.clip(y / scale, -448, 448).astype(float8_e4m3fn).astype(np.float32) * scale
    yield Case(
        "channels", FloatQuant(), (y, scale, *(np.asarray(n, np.int32) for n in (4, 3, 7, 448))), (expected,), constants=constants
    )
