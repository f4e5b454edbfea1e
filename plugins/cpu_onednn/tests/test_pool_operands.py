"""Pooling with an operand of the shape of its result."""

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder, Model
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.div import Div


@pytest.mark.parametrize("dims", [(3, 2, 3), (1, 3, 2, 3), (3, 2, 2, 3), (3, 1, 1)])
def test_one_image(dims: tuple[int, ...]) -> None:
    """With batch 1 an operand without the batch has the whole shape, too, in whatever layout the device pools."""
    rng = np.random.default_rng(5)
    shape = dims if dims[0] == 1 else (1, *dims)
    x, r = rng.standard_normal(shape).astype(np.float32), rng.uniform(0.5, 2, dims).astype(np.float32)
    axes = len(shape) - 2
    pool = AveragePool(kernel_shape=(3,) * axes, pads=(1,) * 2 * axes)
    g = GraphBuilder()
    pooled = g.node(pool, g.input("x", "float32", shape))
    graph = g.graph([g.node(Div(), pooled, g.input("r", "float32", dims))])
    (got,) = dovetail.Core().compile_model(Model(graph), "ONEDNN")({"x": x, "r": r}).values()
    np.testing.assert_allclose(got, pool.reference(x.astype(np.float64)) / r, rtol=1e-5, atol=1e-6)
