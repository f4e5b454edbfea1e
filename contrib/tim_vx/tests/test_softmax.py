"""Softmax against its formula in float64."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import REFERENCE_KERNEL
from dovetail.errors import OperatorError
from dovetail.graph import DType
from dovetail_ops_tim_vx.softmax import Softmax

Array = NDArray[Any]


def formula(x: Array, axis: int, beta: float = 1.0) -> Array:
    """Line by line in float64."""
    y = np.zeros(x.shape)
    moved, target = np.moveaxis(x.astype(np.float64), axis, -1), np.moveaxis(y, axis, -1)
    for place in np.ndindex(*moved.shape[:-1]):
        exponents = np.exp(beta * moved[place] - max(beta * moved[place]))
        target[place] = exponents / sum(exponents)
    return y


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2, -4])
def test_every_axis(device: str, execute: Any, draw: Any, axis: int) -> None:
    x = draw(2, 3, 5, 7, spread=3)
    (y,) = execute(Softmax(axis=axis), [x], device).outputs
    np.testing.assert_allclose(y, formula(x, axis), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.sum(y, axis=axis), 1, rtol=1e-5)


@pytest.mark.parametrize("beta", [0.5, -2.0, 0.0])
def test_beta_multiplies_the_input(device: str, execute: Any, draw: Any, beta: float) -> None:
    x = draw(4, 9, spread=2)
    np.testing.assert_allclose(execute(Softmax(beta=beta), [x], device).outputs[0], formula(x, -1, beta), rtol=1e-5, atol=1e-7)


def test_large_numbers_do_not_overflow(device: str, execute: Any) -> None:
    x = np.float32([[1e30, 1e30, -1e30], [-3e38, -3e38, -3e38], [88, 89, 90]])
    (y,) = execute(Softmax(), [x], device).outputs
    np.testing.assert_allclose(y, [[0.5, 0.5, 0], [1 / 3] * 3, formula(x[2], 0)], rtol=1e-5)


def test_one_bad_line_spoils_no_other(device: str, execute: Any) -> None:
    x = np.float32([[np.nan, 1, 2], [1, np.inf, 2], [-np.inf, 0, 0], [-np.inf] * 3, [1, 1, 1]])
    (y,) = execute(Softmax(), [x], device).outputs
    assert np.isnan(y[0]).all()
    assert np.isnan(y[1, 1])
    np.testing.assert_allclose(y[2], [0, 0.5, 0.5])
    assert np.isnan(y[3]).all()
    np.testing.assert_allclose(y[4], [1 / 3] * 3, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("bfloat16", 8e-3), ("float64", 1e-14)])
def test_other_floats(device: str, execute: Any, draw: Any, dtype: str, tolerance: float) -> None:
    x = draw(3, 10, dtype=dtype)
    (y,) = execute(Softmax(axis=0), [x], device).outputs
    assert y.dtype == DType(dtype).numpy
    np.testing.assert_allclose(y.astype(np.float64), formula(x, 0), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1,), (1, 1)], ids=str)
def test_empty_and_single(device: str, execute: Any, shape: tuple[int, ...]) -> None:
    (y,) = execute(Softmax(), [np.full(shape, 5, np.float32)], device).outputs
    np.testing.assert_array_equal(y, np.ones(shape))


def test_strided_read_only_input(device: str, execute: Any, draw: Any) -> None:
    x = draw(6, 10)[::-2, ::3]
    x.flags.writeable = False
    np.testing.assert_allclose(execute(Softmax(), [x], device).outputs[0], formula(x, -1), rtol=1e-5, atol=1e-7)


def test_the_opencl_device_runs_the_packs_own_kernel(execute: Any, draw: Any) -> None:
    (node,) = execute(Softmax(), [draw(2, 3)], "OPENCL").report.nodes
    assert node.device.startswith("OPENCL")
    assert node.kernel != REFERENCE_KERNEL


@pytest.mark.parametrize(("axis", "shape", "message"), [(2, (2, 3), "axis is 2; accepted: -2 to 1"), (0, (), "accepted: none")])
def test_an_axis_that_is_not_there(execute: Any, axis: int, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        execute(Softmax(axis=axis), [np.zeros(shape, np.float32)])
