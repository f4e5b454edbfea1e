"""Cases of HSwish: its definition by cases in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType
from dovetail.testing import Case
from dovetail_ops_tim_vx.h_swish import HSwish

Array = NDArray[Any]

QUANTIZED: dict[str, Any] = {"input_scale": 0.05, "input_tail": -5.0, "output_scale": 32.0, "output_zero_point": 20.0}
"""Bytes stand for (q - 100) * 0.05 before, and (q - 20) / 32 after."""
EVERY_BYTE = np.arange(256, dtype=np.uint8).reshape(4, 64)


def formula(x: Array, op: HSwish) -> NDArray[np.float64]:
    """0 up to -3, the identity from 3 on, t (t + 3) / 6 between, with the maps before and after."""
    t = x.astype(np.float64) * op.input_scale + op.input_tail
    y = np.where(t <= -3, 0.0, np.where(t >= 3, t, t * (t + 3) / 6))
    return np.asarray(y * op.output_scale + op.output_zero_point)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Known values, both corners of the curve in every float type, all bytes to bytes and floats, floats to bytes, batch 0."""
    x = np.array([-4, -3, -1.5, 0, 1.5, 3, 4], np.float32)
    yield Case("known_values", HSwish(), (x,), (np.array([0, 0, -0.375, 0, 1.125, 3, 4], np.float32),))
    scaled = HSwish(input_scale=0.7, input_tail=-1.25, output_scale=3.5, output_zero_point=2.0)
    for dtype, tolerance in ((DType.FLOAT32, 1e-5), (DType.FLOAT16, 4e-3), (DType.BFLOAT16, 3e-2), (DType.FLOAT64, 1e-12)):
        given = rng.uniform(-6, 6, (2, 3, 7)).astype(dtype.numpy)
        expected = formula(given, scaled).astype(dtype.numpy)
        yield Case(dtype.value, scaled, (given,), (expected,), rtol=tolerance, atol=tolerance)
    whole = HSwish(**QUANTIZED)
    as_bytes = np.clip(np.rint(formula(EVERY_BYTE, whole)), 0, 255).astype(np.uint8)
    yield Case("bytes", whole, (EVERY_BYTE,), (as_bytes,))
    opened = HSwish(**QUANTIZED, output_dtype=DType.FLOAT32)
    yield Case("bytes_to_float32", opened, (EVERY_BYTE,), (formula(EVERY_BYTE, opened).astype(np.float32),), atol=1e-4)
    halves = np.array([3.5, 4.5, 5.5, 1e9, -3, np.nan], np.float32)
    rounded = np.array([4, 4, 6, 255, 0, 0], np.uint8)
    yield Case("float32_to_bytes", HSwish(output_dtype=DType.UINT8), (halves,), (rounded,))
    yield Case("batch_0", whole, (EVERY_BYTE[:0],), (as_bytes[:0],))
