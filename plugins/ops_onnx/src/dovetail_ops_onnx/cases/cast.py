"""Cases of Cast: by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.cast import Cast


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Rounding, truncation, borders and NaN between floats, integers, bools and strings; the same type, a scalar, batch 0."""
    rows: list[tuple[str, Any, Any, Any, Any]] = [
        ("truncates", np.float32, [1.9, -1.9, 0.5, -0.5, 127], np.int8, [1, -1, 0, 0, 127]),
        ("saturates", np.float32, [3e9, -3e9, np.inf, -np.inf, np.nan], np.int32, [2**31 - 1, -(2**31)] * 2 + [0]),
        ("saturates_int64", np.float32, [1e30, -1e30, 2.0**62], np.int64, [2**63 - 1, -(2**63), 2**62]),
        ("saturates_uint8", np.float64, [255.9, 256, -0.9, -1], np.uint8, [255, 255, 0, 0]),
        ("saturates_uint64", np.float64, [2.0**63, 1e30, -5], np.uint64, [2**63, 2**64 - 1, 0]),
        ("keeps_low_bits", np.int16, [200, -129, 255, 256], np.int8, [-56, 127, -1, 0]),
        ("to_unsigned", np.int64, [-1, 2**40 + 3], np.uint32, [2**32 - 1, 3]),
        ("int_to_float", np.int64, [2**24 + 1, -3], np.float32, [2**24, -3]),
        ("overflows_to_infinity", np.float32, [7e4, -7e4, 65504, np.nan], np.float16, [np.inf, -np.inf, 65504, np.nan]),
        ("rounds_to_even", np.float64, [1 + 2.0**-24, 1 + 3 * 2.0**-24], np.float32, [1, 1 + 2.0**-22]),
        ("widens", np.float16, [0.1, np.inf], np.float64, [0.0999755859375, np.inf]),
        ("float_to_bool", np.float32, [0, -0.0, 0.25, np.nan], np.bool_, [False, False, True, True]),
        ("int_to_bool", np.uint8, [0, 1, 2], np.bool_, [False, True, True]),
        ("bool_to_float", np.bool_, [True, False], np.float32, [1, 0]),
        ("bool_to_int", np.bool_, [True, False], np.int64, [1, 0]),
        ("string_to_float", object, ["3.14", "-1e3", "+INF", "nan"], np.float32, [3.14, -1000, np.inf, np.nan]),
        ("string_to_int", object, ["9223372036854775807", "-5"], np.int64, [2**63 - 1, -5]),
        ("float_to_string", np.float32, [0.5, -1.25], object, ["0.5", "-1.25"]),
        ("int_to_string", np.int64, [7, -(2**63)], object, ["7", "-9223372036854775808"]),
        ("same", np.int32, [1, -2], np.int32, [1, -2]),
        ("scalar", np.int32, 5, np.float32, 5),
        ("batch_0", np.float32, np.zeros((0, 3)), np.int32, np.zeros((0, 3))),
    ]
    for name, source, given, target, expected in rows:
        yield Case(name, Cast(to=DType.of(target)), (np.array(given, source),), (np.array(expected, target),), rtol=0, atol=0)
