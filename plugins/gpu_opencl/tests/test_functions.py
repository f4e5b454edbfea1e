"""Functions that CPUs compute in vectors, whose library may differ from that for single numbers, against NumPy in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.exhaustive(0.5)  # each test compiles programs

Open = Callable[[str], Any]
KINDS = pytest.mark.parametrize("kind", ["CPU", "GPU"])
SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-38, -1e-38, 1e-45, 2e-38, 1, -1, 0.5, 2, -2, 1e30, -1e30, 88.7, -88.7, 104]
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cosh": np.cosh,
    "Sinh": np.sinh,
    "Tan": np.tan,
    "Celu": lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5)),
    "Shrink": lambda x: np.where(x < -0.5, x + 0.25, np.where(x > 0.5, x - 0.25, 0)),
    "ThresholdedRelu": lambda x: np.where(x <= 0.5, 0, x),
}
ATTRIBUTES = {"Celu": {"alpha": 1.5}, "Shrink": {"lambd": 0.5, "bias": 0.25}, "ThresholdedRelu": {"alpha": 0.5}}
TOLERANCE = {np.float32: 6e-7, np.float64: 4e-15, np.float16: 1e-3}


def compare(got: Any, wanted: Any, dtype: Any) -> None:
    """Beyond the range of the type results are infinite; below it, they may be 0."""
    with np.errstate(over="ignore"):
        wanted = wanted.astype(dtype)
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE[dtype], atol=float(np.finfo(dtype).smallest_normal))


@KINDS
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, dtype: Any, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    parts = (SPECIAL, rng.standard_normal(301) * 3, rng.uniform(-1, 1, 200), np.logspace(-30, 4, 103))
    with np.errstate(over="ignore"):
        x = np.concatenate(parts).astype(dtype)
    graph, feeds = bench.single(bench.op(name, **ATTRIBUTES.get(name, {})), [x], ())
    (got,) = bench.run(kind_device(kind), graph, feeds)
    with np.errstate(all="ignore"):
        compare(got, FUNCTIONS[name](x.astype(np.float64)), dtype)


@KINDS
@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (np.float64, np.float64), (np.float32, np.float64)])
def test_powers(dtypes: Any, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    bases, exponents = (array.reshape(-1) for array in np.meshgrid(SPECIAL, SPECIAL))
    a = np.concatenate([bases, rng.uniform(0, 9, 301)]).astype(dtypes[0])
    b = np.concatenate([exponents, rng.standard_normal(301) * 4]).astype(dtypes[1])
    graph, feeds = bench.single(bench.op("Pow"), [a, b], ())
    (got,) = bench.run(kind_device(kind), graph, feeds)
    with np.errstate(all="ignore"):
        compare(got, np.power(a.astype(np.float64), b.astype(np.float64)), dtypes[0])
