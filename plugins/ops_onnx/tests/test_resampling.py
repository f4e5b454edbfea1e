"""Resize computed a few planes at a time, and by products with matrices, gives what it gives otherwise."""

import numpy as np
import pytest

from dovetail_ops_onnx import _interpolation
from dovetail_ops_onnx.resize import Resize

CASES = {
    "linear": (Resize(mode="linear"), (3, 5, 6, 7), (3, 5, 12, 9)),
    "align_corners": (Resize(mode="linear", coordinate_transformation_mode="align_corners"), (2, 5, 6, 7), (2, 5, 3, 14)),
    "cubic": (Resize(mode="cubic"), (2, 5, 6, 7), (2, 5, 9, 7)),
    "channels_last": (Resize(mode="linear", antialias=True), (2, 9, 8, 3), (2, 5, 11, 3)),
    "channels": (Resize(mode="linear"), (3, 4, 5), (3, 6, 5)),
    "first_axis": (Resize(mode="linear"), (3, 4, 5), (5, 4, 7)),
    "nearest": (Resize(), (2, 5, 6, 7), (2, 5, 12, 9)),
    "empty": (Resize(mode="linear"), (0, 5, 6), (0, 5, 12)),
    "to_nothing": (Resize(mode="linear"), (4, 5, 6), (4, 5, 0)),
    "unchanged": (Resize(mode="linear"), (4, 5), (4, 5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("case", CASES)
def test_parts(monkeypatch: pytest.MonkeyPatch, case: str, dtype: str) -> None:
    op, shape, sizes = CASES[case]
    x = (100 * np.random.default_rng(3).standard_normal(shape)).astype(dtype)
    whole = op.reference(x, None, None, np.int64(sizes))
    assert whole.shape == sizes
    assert not np.may_share_memory(whole, x)
    monkeypatch.setattr(_interpolation, "PART", 7)
    np.testing.assert_array_equal(op.reference(x, None, None, np.int64(sizes)), whole)


def test_a_region_beyond_the_input_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places outside the input have the extrapolation value in every part."""
    monkeypatch.setattr(_interpolation, "PART", 1)
    op = Resize(mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    got = op.reference(x, np.float32([0, 0, 1, 2]), None, np.int64([2, 4]))
    np.testing.assert_array_equal(got, [[0, 2, 9, 9], [4, 6, 9, 9]])


PRODUCTS = {
    "linear": (Resize(mode="linear"), (3, 5, 40, 70), (3, 5, 55, 63)),
    "align_corners": (Resize(mode="linear", coordinate_transformation_mode="align_corners"), (80, 9, 41), (80, 31, 20)),
    "cubic": (Resize(mode="cubic", exclude_outside=True), (2, 40, 17, 19), (2, 40, 33, 20)),
    "antialias": (Resize(mode="cubic", antialias=True), (2, 300, 260), (2, 70, 90)),
    "channels_last": (Resize(mode="linear"), (2, 17, 19, 70), (2, 33, 34, 70)),
    "first_axis": (Resize(mode="linear"), (50, 130, 3), (47, 131, 3)),
    "backwards": (Resize(mode="linear", coordinate_transformation_mode="tf_crop_and_resize"), (300, 61), (300, 80)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("case", PRODUCTS)
def test_products(monkeypatch: pytest.MonkeyPatch, case: str, dtype: str) -> None:
    op, shape, sizes = PRODUCTS[case]
    x = np.random.default_rng(5).standard_normal(shape).astype(dtype)
    roi = np.float32([0, 1.2, 1, -0.1])
    made: list[str] = []
    product = _interpolation._by_products
    monkeypatch.setattr(_interpolation, "_by_products", lambda *args: made.append("") or product(*args))  # type: ignore[func-returns-value]
    found = op.reference(np.asfortranarray(x), roi, None, np.int64(sizes))
    assert made
    monkeypatch.setattr(_interpolation, "ROWS", x.size + 1)
    expected = op.reference(x.astype(np.float64), roi, None, np.int64(sizes))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=16 * np.finfo(dtype).eps)


@pytest.mark.parametrize("value", [np.nan, np.inf, np.float32(3e38)])
def test_what_is_not_finite_stays_where_it_is(value: float) -> None:
    """Only the elements that read it have it: not all that one product makes."""
    x = np.ones((3, 5, 40, 70), np.float32)
    x[1, 2, 20, 30] = value
    found = Resize(mode="linear").reference(x, None, None, np.int64([3, 5, 80, 140]))
    other = np.ones((3, 5, 80, 140), bool)
    other[1, 2, 39:43, 59:63] = False
    np.testing.assert_array_equal(found[other], 1)
    assert not np.isclose(found[1, 2, 40:42, 60:62], 1).any()


@pytest.mark.parametrize(("nearest", "sign"), [("floor", 1), ("ceil", -1)])
def test_corners_are_exact(nearest: str, sign: int) -> None:
    """A ratio of sizes such as 7 / 13 is not rounded before it is a length again, which moved whole places."""
    op = Resize(coordinate_transformation_mode="align_corners", nearest_mode=nearest)
    for size, out in np.ndindex(16, 30):
        x, steps = np.arange(size + 2, dtype=np.float32), out + 1
        got = op.reference(x, None, None, np.int64([out + 2]))
        exact = [sign * (sign * index * (size + 1) // steps) for index in range(out + 2)]
        assert got.tolist() == exact, (size + 2, out + 2)
