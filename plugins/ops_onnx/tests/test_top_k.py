"""TopK of rows of which only the groups with the largest elements are sorted."""

from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx import top_k
from dovetail_ops_onnx.top_k import TopK


def _sorted(row: Any, count: int, largest: bool) -> list[int]:
    """NaN is larger than every number, and of equal elements the lower place is first."""
    sign = -1 if largest else 1

    def key(place: int) -> tuple[float, float]:
        value = row[place]
        return (sign, 0.0) if value != value else (0, sign * float(value))

    return sorted(range(len(row)), key=key)[:count]


@pytest.mark.parametrize("few", [0, top_k._FEW])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint16", "int64"])
def test_rows(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: str, largest: bool, few: int) -> None:
    """Few and many distinct values, NaN and infinities in some rows or nearly everywhere, sizes that groups do not divide."""
    monkeypatch.setattr(top_k, "_FEW", few)
    monkeypatch.setattr(top_k, "_KEYS", 1 if few else top_k._KEYS)
    for size, count, spread, special in (
        (83, 1, 9, 0.0),
        (41, 1, 3, 0.3),
        (7, 1, 2, 0.9),
        (301, 9, 1, 0.1),
        (1000, 3, 100, 0.02),
        (97, 3, 2, 0.9),
        (640, 40, 50, 0.0),
    ):
        x = np.round(spread * rng.standard_normal((4, size))).astype(np.int64).astype(dtype)
        if x.dtype.kind == "f":
            lost = rng.random(x.shape) < special
            x[lost] = rng.choice(np.float32([np.nan, np.inf, -np.inf]), x.shape)[lost]
        x.flags.writeable = False
        want = [_sorted(row, count, largest) for row in x.tolist()]
        for rows in (4, 1):
            values, places = TopK(largest=largest).reference(x[:rows], np.array([count]))
            np.testing.assert_array_equal(places, want[:rows])
            np.testing.assert_array_equal(values, np.take_along_axis(x[:rows], np.array(want[:rows]), 1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes(rng: np.random.Generator, axis: int) -> None:
    x = rng.permutation(3 * 70 * 40).reshape(3, 70, 40).astype(np.float32)
    values, places = TopK(axis=axis).reference(x, np.array([2]))
    np.testing.assert_array_equal(values, np.sort(x, axis).take([-1, -2], axis))
    np.testing.assert_array_equal(np.take_along_axis(x, places, axis), values)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 5, 64])
def test_zeros_of_both_signs_are_equal(rng: np.random.Generator, dtype: str, count: int) -> None:
    """Also beside subnormal numbers, and in Fortran order."""
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.asfortranarray(rng.choice(np.array([-tiny, -0.0, 0.0, tiny], dtype), (40, 64)))
    values, places = TopK().reference(x, np.array([count]))
    np.testing.assert_array_equal(places, [_sorted(row, count, True) for row in x.tolist()])
    np.testing.assert_array_equal(np.signbit(values), np.signbit(np.take_along_axis(x, places, 1)))


def test_nan_of_both_signs_are_equal(rng: np.random.Generator) -> None:
    x = rng.choice(np.float32([-np.nan, np.nan, np.inf, -np.inf, 1]), (40, 64))
    _, places = TopK().reference(x, np.array([40]))
    np.testing.assert_array_equal(places, [_sorted(row, 40, True) for row in x.tolist()])


def test_equal_elements_are_sorted_as_a_whole() -> None:
    """Every element reaches the bound, and the first ones count."""
    x = np.zeros((2, 1000), np.float32)
    x[1, 700] = 1
    _, places = TopK().reference(x, np.array([3]))
    np.testing.assert_array_equal(places, [[0, 1, 2], [700, 0, 1]])
