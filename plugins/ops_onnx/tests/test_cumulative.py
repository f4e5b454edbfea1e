"""Running sums and products: plane by plane and element by element, compared with Python's sums of float64 or integers."""

from itertools import accumulate
from operator import add, mul
from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx.cum_prod import CumProd
from dovetail_ops_onnx.cum_sum import CumSum


def _expected(x: Any, axis: int, exclusive: bool, reverse: bool, is_sum: bool) -> Any:
    lines = np.moveaxis(x, axis, -1)
    found = np.empty(lines.shape, np.float64)
    for place in np.ndindex(lines.shape[:-1]):
        line = lines[place].tolist()[:: -1 if reverse else 1]
        first = 0 if is_sum else 1
        results = list(accumulate(line, add if is_sum else mul, initial=first))
        results = results[:-1] if exclusive else results[1:]
        found[place] = results[:: -1 if reverse else 1]
    return np.moveaxis(found, -1, axis)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(3, 5, 70), (2, 300, 1), (300, 1), (1, 4, 211), (0, 3), (3, 0)])
def test_every_axis(rng: np.random.Generator, shape: tuple[int, ...], reverse: bool, exclusive: bool) -> None:
    for dtype, tolerance in (("float32", 1e-5), ("int64", 0)):
        x = rng.integers(1, 3, shape).astype(dtype) if dtype == "int64" else rng.standard_normal(shape).astype(dtype)
        for given in (x, np.asfortranarray(x)):
            for axis in range(len(shape)):
                sums = CumSum(exclusive=exclusive, reverse=reverse).reference(given, np.array(axis))
                want = _expected(x, axis, exclusive, reverse, True)
                np.testing.assert_allclose(sums, want, rtol=tolerance, atol=10 * tolerance)
                assert sums.dtype == x.dtype
        if max(shape) < 300:  # products of more integers are out of range
            products = CumProd(exclusive=exclusive, reverse=reverse).reference(x[..., :6], np.array(-1))
            np.testing.assert_allclose(products, _expected(x[..., :6], -1, exclusive, reverse, False), rtol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dims", [(50, 9), (50, 2), (3, 50, 8), (50, 1), (2, 50, 3, 5)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_sums_of_few_columns_have_the_bits_of_sums_in_order(
    rng: np.random.Generator, dtype: type, dims: tuple[int, ...], reverse: bool, exclusive: bool
) -> None:
    """With infinities, NaN and zeros of both signs beside each other: neighbours do not touch each other."""
    axis = dims.index(50)
    wide = rng.standard_normal((*dims[:-1], dims[-1] + 2)).astype(dtype)
    wide[rng.random(wide.shape) < 0.01] = np.inf
    wide[rng.random(wide.shape) < 0.01] = np.nan
    for x in (wide[..., 1:-1], wide[..., 1:-1].copy(), np.asfortranarray(wide[..., 1:-1])):
        lines = np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0)
        sums = [np.zeros_like(lines[0])] if exclusive else [lines[0]]
        for line in lines[:-1] if exclusive else lines[1:]:
            sums.append(line if exclusive and len(sums) == 1 else sums[-1] + line)
        want = np.moveaxis(np.stack(sums), 0, axis)
        with np.errstate(all="ignore"):
            found = CumSum(reverse=reverse, exclusive=exclusive).reference(x, np.array(axis))
        np.testing.assert_array_equal(found, np.flip(want, axis) if reverse else want)
