"""Places of values among keys, against a dictionary: tables, searched keys, the ends of int64, NaN, strings."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx_ml._lookup import Lookup
from dovetail_ops_onnx_ml.imputer import Imputer

ENDS = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2]
KEYS: list[tuple[Any, list[Any], list[Any]]] = [
    (np.int64, [3, 1, 3, -5, 7], [0, 4, -6, 8, 1000, *ENDS]),
    (np.int64, [2**63 - 1, 2**63 - 3], [0, -1, *ENDS]),
    (np.int64, [-(2**63), 5 - 2**63], [0, -1, *ENDS]),
    (np.int64, [*ENDS, 0, 0], [1, -1, 2**62]),
    (np.int16, [300, 299, -300], [0, 32767, -32768]),
    (np.float32, [0.0, -0.0, 2.5, math.nan, math.inf, math.nan], [1.0, -math.inf]),
    (object, ["b", "a", "b", ""], ["c", "ab"]),
    (np.int64, [], [1, 2]),
]


@pytest.mark.parametrize("has_nan", [True, False])
@pytest.mark.parametrize(("dtype", "keys", "others"), KEYS, ids=lambda value: str(value)[:30])
def test_as_a_dictionary(dtype: Any, keys: list[Any], others: list[Any], has_nan: bool) -> None:
    def name(x: Any) -> Any:
        return "nan" if isinstance(x, float) and math.isnan(x) else x

    known = {name(key): place for place, key in reversed(list(enumerate(keys)))}
    if not has_nan:
        known.pop("nan", None)
    x = np.array([*keys, *others], dtype)
    found = Lookup(np.array(keys, dtype), has_nan).places(x)
    assert found.tolist() == [known.get(name(value), -1) for value in x.tolist()]
    assert Lookup(np.array(keys, dtype), has_nan).places(x[:0]).shape == (0,)


@pytest.mark.parametrize("share", [0, 0.01, 0.5])
@pytest.mark.parametrize("count", [1, 7])
def test_imputer_of_few_and_many_missing_values(rng: np.random.Generator, share: float, count: int) -> None:
    x = rng.standard_normal((300, 7)).astype(np.float32)
    x[rng.random(x.shape) < share] = np.nan
    values = tuple(float(v) for v in range(count))
    want = [[values[i % count] if math.isnan(v) else v for i, v in enumerate(row)] for row in x.tolist()]
    op = Imputer(imputed_value_floats=values, replaced_value_float=math.nan)
    for layout in (x, np.asfortranarray(x)):
        layout.flags.writeable = False
        np.testing.assert_array_equal(op.reference(layout), np.array(want, np.float32), strict=True)
