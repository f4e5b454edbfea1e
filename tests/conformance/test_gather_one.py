"""Gather of a single index that is known in the run only: each axis, ranks of the index, and one that is out of range."""

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.gather import Gather

pytestmark = pytest.mark.parametrize("host", ["NUMPY", "ONEDNN"])


def compiled(core, host, axis, shape, indices):
    g = GraphBuilder()
    data, at = g.input("data", "float32", shape), g.input("at", str(indices.dtype), indices.shape)
    return core.compile_model(g.model([g.node(Gather(axis=axis), data, at)]), host)


@pytest.mark.parametrize("indices", [np.array(1), np.array([-2]), np.array([[0]], np.int32)])
@pytest.mark.parametrize(("axis", "shape"), [(0, (3,)), (0, (2, 3, 4)), (1, (2, 3, 4)), (-1, (2, 3, 4)), (1, (1, 2))])
def test_single_indices(host, axis, shape, indices):
    rng = np.random.default_rng(3)
    with dovetail.Core() as core, compiled(core, host, axis, shape, indices) as model:
        for _ in range(2):
            data = rng.standard_normal(shape).astype(np.float32)
            (found,) = model([data, indices]).values()
            expected = data.take(indices, axis)
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wrong", [3, -4])
def test_single_indices_out_of_range(host, wrong):
    with dovetail.Core() as core, compiled(core, host, 1, (2, 3), np.array(0)) as model:
        with pytest.raises(InferError, match=f"index {wrong} is outside axis 1 of size 3"):
            model([np.zeros((2, 3), np.float32), np.array(wrong)])
        assert model([np.ones((2, 3), np.float32), np.array(-1)])[0].tolist() == [1, 1]
