"""Reductions by NumPy between convolutions that have their channels last: no reorder, and the numbers of float64."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_sum import ReduceSum

KINDS: dict[str, tuple[Any, Any]] = {"max": (ReduceMax, np.max), "min": (ReduceMin, np.min), "sum": (ReduceSum, np.sum)}
CASES = [
    ((2, 16, 37, 20), (-1,)),
    ((1, 16, 5, 7), (2,)),
    ((3, 16, 5, 3), (2, 3)),
    ((3, 16, 5, 4), (0, 3)),
    ((2, 16, 4, 2, 3), (3,)),
]
CASES += [((4, 16, 6, 5), (0,)), ((2, 16, 3, 4), (1,)), ((2, 16, 70, 60), (2, 3))]


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_results(name: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    operator, numpy = KINDS[name]
    rng, g = np.random.default_rng(1), GraphBuilder()
    weights = (np.eye(shape[1]) * rng.uniform(0.5, 1.5, shape[1])).astype(np.float32)
    kernel = g.constant(weights.reshape(*weights.shape, *[1] * (len(shape) - 2)))
    x = g.input("x", "float32", shape)
    y = g.node(operator(keepdims=keepdims), g.node(Conv(), x, kernel), g.constant(np.array(axes)))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    data = rng.uniform(0.5, 1.5, shape).astype(np.float32)
    for found in (data, np.where(rng.random(shape) < 0.01, np.nan, data).astype(np.float32)):
        between = np.einsum("oi,ni...->no...", weights.astype(np.float64), found.astype(np.float64))
        wanted = numpy(between, axis=axes, keepdims=keepdims)
        np.testing.assert_allclose(compiled(found)[y], wanted, rtol=3e-6)


@pytest.mark.parametrize("keepdims", [True, False])
def test_no_reorder_before_it(keepdims: bool) -> None:
    rng, g = np.random.default_rng(2), GraphBuilder()

    def weights(*shape: int) -> str:
        return g.constant(rng.standard_normal(shape).astype(np.float32))

    x = g.node(Conv(), g.input("x", "float32", (1, 6, 200, 20)), weights(64, 6, 1, 1), outputs=["between"])
    y = g.node(ReduceMax(keepdims=keepdims), x, g.constant(np.array([-1])))
    y = g.node(Conv(), y, weights(32, 64, 1, 1) if keepdims else weights(32, 64, 1))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    names = [node.name for node in compiled.report().nodes]
    assert not any("between" in name for name in names if name.startswith("reorder"))
