"""Transpose in parts of the last axis gives what it gives at once."""

import numpy as np
import pytest

from dovetail_cpu_numpy.kernels.transpose import _step
from dovetail_ops_onnx.transpose import Transpose


@pytest.mark.parametrize(
    ("shape", "perm", "step"),
    [
        ((3, 41, 47), (1, 2, 0), 1),
        ((4096, 1), (1, 0), 0),
        ((3, 7, 11), (1, 2, 0), 0),
        ((300, 512), (1, 0), 16),
        ((2, 257, 256), (0, 2, 1), 16),
        ((300, 500), (1, 0), 0),
        ((255, 512), (1, 0), 0),
        ((701, 801), (1, 0), 16),
        ((0, 512), (1, 0), 0),
        ((9,), (0,), 0),
        ((), (), 0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_transpose(bench, shape, perm, step, dtype):
    x = np.random.default_rng(0).integers(0, 1 << 30, shape).astype(dtype)
    if dtype == np.float32:
        assert (_step(x.transpose(perm)) if x.size else 0) == step
    got = bench.run_one(Transpose(perm=perm), (x,), bench.kernel("transpose", "copy"))
    index = np.indices(got.shape)
    places = [index[perm.index(axis)] for axis in range(len(shape))]
    np.testing.assert_array_equal(got, x[tuple(places)] if shape else x)
