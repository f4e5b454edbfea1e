"""Gemm with constants: weights that are turned beforehand for few rows, and an addend that is scaled."""

import gc

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_cpu_numpy.shared import _SHARED
from dovetail_ops_onnx.gemm import Gemm


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 128, 129])
@pytest.mark.parametrize("constants", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("op", [Gemm(transB=True), Gemm(transA=True, transB=True, alpha=0.5, beta=2.0), Gemm(beta=0.5)])
def test_gemm(bench, op, constants, rows):
    rng = np.random.default_rng(rows)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 7), (7, 9), (9,)))
    arrays = [a.T.copy() if op.transA else a, b.T.copy() if op.transB else b, c]
    want = op.alpha * (a.astype(np.float64) @ b) + op.beta * c
    np.testing.assert_allclose(bench.run_one(op, arrays, constants=constants), want, rtol=1e-5, atol=1e-5)


def test_plans_share_the_turned_weights_of_a_gemm():
    """For as long as the model lives."""
    rng, before = np.random.default_rng(7), len(_SHARED)
    weights = [rng.standard_normal((5, 3)).astype(np.float32) for _ in range(2)]
    g = GraphBuilder()
    x = g.input("x", "float32", ("N", 3))
    names = [g.node(Gemm(transB=True), x, g.constant(w)) for w in weights]
    compiled = dovetail.Core(config=False).compile_model(g.model(names), "NUMPY")
    found = []
    for rows in (4, 2, 3):
        data = rng.standard_normal((rows, 3)).astype(np.float32)
        for result, w in zip(compiled({"x": data}).values(), weights, strict=True):
            np.testing.assert_allclose(result, data @ w.T, rtol=1e-5, atol=1e-6)
        (step,) = compiled.plan((data.shape,)).steps
        found.append([state.b for state in step.executable.states])
    assert found[0][0] is not found[0][1]
    assert all(b is first for others in found for b, first in zip(others, found[0], strict=True))
    del found, step, compiled
    gc.collect()
    assert len(_SHARED) == before
