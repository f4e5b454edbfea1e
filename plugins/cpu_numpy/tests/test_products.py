"""Gemm with constants: weights that are turned beforehand for few rows, and an addend that is scaled."""

import numpy as np
import pytest

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
