"""Accuracy of the references: erf to the last places of float64, narrow types rounded once."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail.graph import DType
from dovetail_ops_onnx import find
from dovetail_ops_onnx.erf import erf

_UNARY = ["Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg"]
_UNARY += ["Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh"]
_BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "PRelu"]


def _reference(op_type: str, *inputs: Any) -> Any:
    cls = find(op_type, 28)
    assert cls is not None
    return cls().reference(*inputs)


def test_erf_is_exact_to_four_units_in_the_last_place_of_float64() -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.uniform(-7, 7, 40_000), np.logspace(-300, 2, 500), -np.logspace(-20, 1, 500)])
    expected = np.array([math.erf(v) for v in x])
    assert np.max(np.abs(erf(x) - expected) / np.spacing(np.abs(expected))) <= 4


def test_erf_of_float32_is_rounded_correctly_or_to_the_neighbour() -> None:
    x = np.random.default_rng(8).uniform(-5, 5, 40_000).astype(np.float32)
    expected = np.array([math.erf(v) for v in x]).astype(np.float32)
    got = _reference("Erf", x)
    assert got.dtype == np.float32
    assert np.mean(got != expected) < 1e-4
    assert np.max(np.abs(got - expected) / np.spacing(np.abs(expected))) <= 1


def test_erf_of_special_values() -> None:
    got = erf(np.array([0.0, -0.0, np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(got, [0, 0, 1, -1, np.nan])
    assert np.signbit(got[1])
    assert erf(np.array(0.5)).shape == ()


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("op_type", _UNARY)
def test_a_narrow_unary_result_is_rounded_once(op_type: str, dtype: DType) -> None:
    x = np.random.default_rng(9).uniform(0.1, 4, (5, 7)).astype(dtype.numpy)
    wide = _reference(op_type, x.astype(np.float32))
    got = _reference(op_type, x)
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got, wide.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("op_type", _BINARY)
def test_a_narrow_binary_result_is_rounded_once(op_type: str, dtype: DType) -> None:
    rng = np.random.default_rng(10)
    a, b = (rng.uniform(0.1, 4, (5, 7)).astype(dtype.numpy) for _ in range(2))
    got = _reference(op_type, a, b)
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got, _reference(op_type, a.astype(np.float32), b.astype(np.float32)).astype(dtype.numpy))


@pytest.mark.parametrize("op_type", [*_UNARY, *_BINARY])
def test_no_result_of_a_scalar_is_wider_than_its_type(op_type: str) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        inputs = [np.array(0.5, dtype)] * (2 if op_type in _BINARY else 1)
        got = _reference(op_type, *inputs)
        assert isinstance(got, np.ndarray)
        assert got.dtype == dtype
        assert got.shape == ()
