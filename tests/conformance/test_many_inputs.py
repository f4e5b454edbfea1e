"""Operators with any number of inputs, on every device: a device has limits of its own for one kernel or primitive."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.mean import Mean
from dovetail_ops_onnx.min import Min
from dovetail_ops_onnx.sum import Sum

pytestmark = pytest.mark.exhaustive(0.25, device="OPENCL")  # compiles programs

Array = NDArray[Any]

COUNTS = (1, 2, 14, 15, 16, 33, 34, 35, 64, 100)
SHAPES = ((2, 3, 5), (3, 5), (1, 3, 1), (2, 1, 1), (5,), ())
OPERATORS: dict[str, tuple[Any, Callable[[list[Array]], Array]]] = {
    "sum": (Sum, lambda values: reduce(np.add, values)),
    "mean": (Mean, lambda values: reduce(np.add, values) / len(values)),
    "max": (Max, lambda values: reduce(np.maximum, values)),
    "min": (Min, lambda values: reduce(np.minimum, values)),
}


def _check(core: dovetail.Core, device: str, name: str, arrays: list[Array]) -> None:
    op, formula = OPERATORS[name]
    g = GraphBuilder()
    inputs = [g.input(f"x{i}", "float32", array.shape) for i, array in enumerate(arrays)]
    y = g.node(op(), *inputs)
    with core.compile_model(g.model([y]), device, {"FALLBACK": False}) as compiled:
        got = compiled(dict(zip(inputs, arrays, strict=True)))[y]
    want = formula([array.astype(np.float64) for array in arrays])
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_inputs_that_broadcast(core: dovetail.Core, device: str, name: str, count: int) -> None:
    rng = np.random.default_rng(count)
    arrays = [rng.standard_normal(SHAPES[i % len(SHAPES)]).astype(np.float32) for i in range(count)]
    _check(core, device, name, arrays)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_inputs_of_one_shape(core: dovetail.Core, device: str, name: str, count: int) -> None:
    """The last input is the largest for one half, the smallest for the other: none may be left out."""
    rng = np.random.default_rng(count)
    arrays = [rng.standard_normal((3, 7)).astype(np.float32) for _ in range(count)]
    arrays[-1][:, ::2] = 9
    arrays[-1][:, 1::2] = -9
    _check(core, device, name, arrays)


def test_auto_runs_a_long_sum(core: dovetail.Core) -> None:
    """By hand: 40 times 1."""
    g = GraphBuilder()
    inputs = [g.input(f"x{i}", "float32", (2, 3)) for i in range(40)]
    y = g.node(Sum(), *inputs)
    with core.compile_model(g.model([y]), "AUTO") as compiled:
        got = compiled(dict.fromkeys(inputs, np.ones((2, 3), np.float32)))[y]
    assert got.tolist() == [[40] * 3] * 2
