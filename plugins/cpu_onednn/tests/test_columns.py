"""Sums and means over axes that come before others."""

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels import _reduce
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu


def reduced(x, op, axes, after=None):
    """The result, and the kernel that computed it."""
    g = GraphBuilder()
    y = g.node(op, g.input("x", "float32", x.shape), g.constant(np.int64(axes)))
    y = y if after is None else g.node(after, y)
    with dovetail.Core(config=False) as core, core.compile_model(g.model([y]), "ONEDNN") as compiled:
        return compiled({"x": x})[y], compiled.report().nodes[0].kernel


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(("op", "by_hand"), [(ReduceSum, np.sum), (ReduceMean, np.mean)])
@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        ((2, 13, 17, 41), (1, 2)),
        ((3000, 7), (0,)),
        ((4, 5, 100, 33), (-2,)),
        ((4, 5, 100, 33), (1,)),
        ((8, 30, 80), (0, 1)),
        ((1, 2, 9000), (1,)),
    ],
)
def test_against_float64(dims, axes, op, by_hand, keepdims):
    x = np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)
    found, kernel = reduced(x, op(keepdims=keepdims), axes)
    want = by_hand(x.astype(np.float64), axis=axes, keepdims=keepdims)
    assert kernel.startswith("jit")
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("rows", [3, 49, 64, 3136])
def test_sums_of_whole_numbers_are_exact(rows):
    """They are counts, which a later node takes as integers."""
    x = np.random.default_rng(rows).integers(-9, 9, (2, rows, 2731)).astype(np.float32)
    found, kernel = reduced(x, ReduceSum(), (1,))
    assert kernel.startswith("jit")
    np.testing.assert_array_equal(found, x.sum(axis=1, keepdims=True, dtype=np.float64))


@pytest.mark.parametrize("op", [ReduceSum(), ReduceMean()], ids=["sum", "mean"])
def test_what_is_not_finite_stays_in_its_column(op):
    x = np.ones((100, 200), np.float32)
    x[3, 5], x[99, 6], x[0, 7], x[1:3, 8] = np.nan, np.inf, -np.inf, [np.inf, -np.inf]
    (found,) = reduced(x, op, (0,))[0]
    assert np.isnan(found[[5, 8]]).all()
    assert found[6] == np.inf
    assert found[7] == -np.inf
    assert np.isfinite(np.delete(found, [5, 6, 7, 8])).all()


def test_a_function_behind_a_sum():
    x = np.random.default_rng(1).standard_normal((3, 100, 77)).astype(np.float32)
    found, _ = reduced(x, ReduceSum(), (1,), Relu())
    np.testing.assert_allclose(found, np.maximum(x.astype(np.float64).sum(1, keepdims=True), 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dims", "axes"), [((3, 4, 5), (1,)), ((_reduce.EXACT + 1, 7), (0,)), ((30, 40, 50), (0, 2)), ((0, 40, 500), (1,))]
)
def test_others_are_added_up_by_numpy(dims, axes):
    x = np.random.default_rng(2).standard_normal(dims).astype(np.float32)
    found, kernel = reduced(x, ReduceSum(), axes)
    assert not kernel.startswith("jit")
    np.testing.assert_allclose(found, x.astype(np.float64).sum(axis=axes, keepdims=True), rtol=1e-4, atol=1e-3)
