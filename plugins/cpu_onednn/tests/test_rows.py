"""Sums and means of short rows: products with a column of ones."""

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels._reduce import MANY, SHORT
from dovetail_cpu_onednn.kernels._ufunc_reduction import SOME
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu

PRODUCT = ("brg", "gemm")


def reduced(x, op, axes, *after):
    """The result, and the kernels of all nodes. `after`: Relu, or what is added."""
    g = GraphBuilder()
    y = g.node(op, g.input("x", "float32", x.shape), g.constant(np.int64(axes)))
    for step in after:
        y = g.node(step, y) if isinstance(step, Relu) else g.node(Add(), y, g.constant(step))
    with dovetail.Core(config=False) as core, core.compile_model(g.model([y]), "ONEDNN") as compiled:
        return compiled({"x": x})[y], [node.kernel for node in compiled.report().nodes]


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(("op", "by_hand"), [(ReduceSum, np.sum), (ReduceMean, np.mean)])
@pytest.mark.parametrize(
    ("dims", "axes"),
    [((2880, 3), (1,)), ((2, 144, 10, 16), (-1,)), ((MANY, 5, 7), (1, 2)), ((33, SHORT), (1,)), ((3, 7, 2, 17), (3,))],
)
def test_against_float64(dims, axes, op, by_hand, keepdims):
    x = np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)
    found, (kernel,) = reduced(x, op(keepdims=keepdims), axes)
    want = by_hand(x.astype(np.float64), axis=axes, keepdims=keepdims)
    assert kernel.startswith(PRODUCT)
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize(
    ("dims", "axes"), [((MANY - 1, 7), (1,)), ((MANY, SHORT + 1), (1,)), ((40, 7, 30), (1,)), ((40, 7, 30), (0, 2))]
)
def test_others_take_other_kernels(dims, axes):
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    found, (kernel,) = reduced(x, ReduceSum(), axes)
    assert not kernel.startswith(PRODUCT)
    want = x.astype(np.float64).sum(axis=axes, keepdims=True)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("columns", [2, 31, SHORT])
def test_sums_and_means_of_whole_numbers_are_exact(columns):
    """They are counts, which a later node takes as integers."""
    x = np.random.default_rng(columns).integers(-9, 9, (100, columns)).astype(np.float32)
    np.testing.assert_array_equal(reduced(x, ReduceSum(), (1,))[0], x.sum(axis=1, keepdims=True, dtype=np.float64))
    same = np.repeat(x[:, :1], columns, axis=1)
    np.testing.assert_array_equal(reduced(same, ReduceMean(), (1,))[0], x[:, :1])


@pytest.mark.parametrize("op", [ReduceSum(), ReduceMean()], ids=["sum", "mean"])
def test_what_is_not_finite_stays_in_its_row(op):
    x = np.ones((40, 7), np.float32)
    x[5, 3], x[6, 6], x[7, 0], x[8, 1:3] = np.nan, np.inf, -np.inf, [np.inf, -np.inf]
    found = reduced(x, op, (1,))[0][:, 0]
    assert np.isnan(found[[5, 8]]).all()
    assert found[6] == np.inf
    assert found[7] == -np.inf
    assert np.isfinite(np.delete(found, [5, 6, 7, 8])).all()


@pytest.mark.parametrize("shape", [(), (6, 20, 1), (1, 20, 1), (6, 1, 1)])
def test_post_ops(shape):
    rng = np.random.default_rng(1)
    x, added = rng.standard_normal((6, 20, 9)).astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    found, _ = reduced(x, ReduceMean(), (2,), added, Relu())
    want = np.maximum(x.astype(np.float64).mean(axis=2, keepdims=True) + added, 0)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(("op", "by_hand"), [(ReduceMax, np.max), (ReduceMin, np.min), (ReduceProd, np.prod)])
@pytest.mark.parametrize("dims", [(192, SOME), (2, 3, 100, 7), (32, 2), (191, SOME), (300, SOME + 1)])
def test_extremes_and_products(dims, op, by_hand, keepdims):
    x = np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)
    x.flat[5], x.flat[40], x.flat[55] = np.nan, np.inf, -np.inf
    found, (kernel,) = reduced(x, op(keepdims=keepdims), (-1,))
    if op is ReduceProd:
        assert (kernel == "ufunc") == (dims[-1] <= SOME and dims[0] != 191)
    np.testing.assert_allclose(found, by_hand(x.astype(np.float64), axis=-1, keepdims=keepdims), rtol=1e-5)


def test_a_function_after_short_rows():
    x = np.random.default_rng(3).standard_normal((400, 6)).astype(np.float32)
    found, kernels = reduced(x, ReduceMax(), (1,), Relu())
    assert kernels[0] == "ufunc"
    np.testing.assert_array_equal(found, np.maximum(x.max(axis=1, keepdims=True), 0))
