"""PairwiseDistances against differences in float64, pair by pair."""

from typing import Any

import numpy as np
import pytest

import dovetail_ops_onnx.pairwise_distances as module
from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.pairwise_distances import PairwiseDistances

SIZES = [(1, 1, 1), (1, 9, 5), (9, 1, 5), (7, 13, 3), (200, 3, 2), (3, 300, 70), (0, 4, 3), (4, 0, 3), (3, 4, 0)]


def expected(a: Any, b: Any, power: int) -> Any:
    with np.errstate(all="ignore"):
        pairs = [[(np.abs(x - y) ** power).sum() for y in b.astype(np.float64)] for x in a.astype(np.float64)]
    return np.array(pairs, np.float64).reshape(len(a), len(b))


@pytest.fixture(params=["as they are", "small"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "small":
        for name, value in (("_ROWS", 2), ("_PRODUCTS", 12), ("_LEAST", 1), ("_MOST", 6), ("_DIFFERENCES", 10)):
            monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_each_pair(size: tuple[int, int, int], power: int, dtype: Any) -> None:
    rng, (m, k, n) = np.random.default_rng(3), size
    a, b = rng.standard_normal((n, m)).astype(dtype).T, rng.standard_normal((k, n)).astype(dtype)
    b.flags.writeable = False
    found = PairwiseDistances(power).reference(a, b)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected(a, b, power), rtol=2e-6 if dtype == np.float32 else 1e-13)


@pytest.mark.usefixtures("blocks")
def test_rows_that_are_near_each_other_far_from_zero() -> None:
    rng = np.random.default_rng(4)
    a = (1000 + rng.standard_normal((9, 4))).astype(np.float32)
    b = np.concatenate([a[::-1], np.nextafter(a, np.float32(np.inf)), a + np.float32(0.01)])
    found = PairwiseDistances().reference(a, b)
    np.testing.assert_allclose(found, expected(a, b, 2), rtol=1e-5)
    assert (np.diag(found[:, 8::-1]) == 0).all()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("power", [1, 2])
def test_infinities_and_nan(power: int) -> None:
    special = np.float32([[1, np.inf], [-np.inf, 2], [np.nan, 0], [np.inf, np.inf], [3e38, -3e38], [0.5, -0.0]])
    with np.errstate(all="ignore"):
        want = expected(special, special, power).astype(np.float32)
    np.testing.assert_array_equal(PairwiseDistances(power).reference(special, special), want)


@pytest.mark.parametrize("power", [1, 2])
def test_one_feature_is_as_many_as_the_other_has(power: int) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((rows, n)).astype(np.float32) for rows, n in ((3, 1), (4, 6)))
    np.testing.assert_allclose(PairwiseDistances(power).reference(a, b), expected(a, b, power), rtol=1e-5)
    np.testing.assert_allclose(PairwiseDistances(power).reference(b, a), expected(b, a, power), rtol=1e-5)


def test_what_is_refused() -> None:
    a, b = (TensorType.of(np.zeros(shape, np.float32)) for shape in ((2, 3), (2, 4)))
    with pytest.raises(ShapeError, match="accepted"):
        PairwiseDistances().infer(a, b)
    with pytest.raises(OperatorError, match="accepted"):
        PairwiseDistances(3)
