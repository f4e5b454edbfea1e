"""Reductions of many short rows, column by column."""

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_cpu_numpy.kernels._reduce import SOME, UfuncReduce
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum

OPERATORS = [(ReduceMax, np.max), (ReduceMin, np.min), (ReduceMean, np.mean), (ReduceProd, np.prod), (ReduceSum, np.sum)]


@pytest.mark.parametrize(("op", "by_hand"), OPERATORS)
@pytest.mark.parametrize(
    ("dims", "by_columns"),
    [((192, SOME), True), ((2, 50, 6), True), ((191, SOME), False), ((300, SOME + 1), False), ((1, 4), True)],
)
def test_against_float64(monkeypatch, dims, by_columns, op, by_hand):
    x = np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)
    x[..., -1, 1] = np.nan
    asked = []
    by_column = UfuncReduce._by_column
    monkeypatch.setattr(UfuncReduce, "_by_column", lambda self, *given: (asked.append(1), by_column(self, *given))[1])
    g = GraphBuilder()
    y = g.node(op(keepdims=False), g.input("x", "float32", dims), g.constant(np.int64([-1])))
    with dovetail.Core(config=False) as core, core.compile_model(g.model([y]), "NUMPY") as compiled:
        found = compiled({"x": x})[y]
    assert bool(asked) is by_columns
    np.testing.assert_allclose(found, by_hand(x.astype(np.float64), axis=-1), rtol=1e-5, atol=1e-6)
