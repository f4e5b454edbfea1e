"""Squares, sums of squares and norms on CPUs: none by a reference, all against float64."""

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_l2 import ReduceL2
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reduce_sum_square import ReduceSumSquare

SHAPES = [(3, 5, 2), (7, 3), (2, 3, 4), (4, 5), (0, 2), (3, 1)]


def _run(op, device, x, *more):
    """The result of a node that reads the value of a square, and the kernels."""
    g = GraphBuilder()
    value = g.input("x", x.dtype.name, x.shape)
    inputs = (value, value) if isinstance(op, Mul) else (value, *map(g.constant, more))
    with dovetail.Core(config=False).compile_model(g.model([g.node(op, *inputs)]), device) as compiled:
        return compiled({"x": x})[0], [node.kernel for node in compiled.report().nodes]


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_value_times_itself(device, shape, dtype):
    x = (np.random.default_rng(len(shape)).standard_normal(shape) * 100).astype(dtype)
    found, kernels = _run(Mul(), device, x)
    np.testing.assert_allclose(found, x.astype(np.float64) ** 2, rtol=1e-6)
    assert "ref" not in kernels or not x.size


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ReduceSumSquare(), lambda x: np.sum(x * x, -1, keepdims=True)),
        (ReduceL2(keepdims=False), lambda x: np.sqrt(np.sum(x * x, -1))),
        (ReduceSum(keepdims=False), lambda x: np.sum(x, -1)),
        (ReduceMax(), lambda x: np.max(x, -1, keepdims=True)),
    ],
    ids=["sum_square", "l2", "sum", "max"],
)
def test_along_a_short_axis(device, shape, op, expected):
    x = np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[:1] = np.nan
    found, kernels = _run(op, device, x, np.array([-1]))
    np.testing.assert_allclose(found, expected(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    assert "ref" not in kernels or not x.size


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_numbers_of_other_types(device):
    """Integers wrap, or are cut off; float16 is computed in float32, where squares do not overflow."""
    x = np.array([[3, -(2**31)], [1, 1]], np.int32)
    assert _run(ReduceSumSquare(), device, x, np.array([1]))[0].tolist() == [[9], [2]]
    assert _run(ReduceL2(), device, x[1:], np.array([1]))[0].tolist() == [[1]]
    half = np.array([[300, 400]], np.float16)
    assert _run(ReduceL2(), device, half, np.array([1]))[0].tolist() == [[500]]
