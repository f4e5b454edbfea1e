"""Normalizations whose sums BLAS computes, against float64: means far from 0, odd sizes, one element."""

import numpy as np
import pytest

from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.log_softmax import LogSoftmax


def exact(x, axes):
    """Centred and divided by the standard deviation, in float64."""
    x = x.astype(np.float64)
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5, 7), (3, 2, 129), (2, 5, 3, 4, 5)])
@pytest.mark.parametrize("mean", [0, 100])
def test_instance_normalization(bench, shape, mean):
    rng = np.random.default_rng(len(shape))
    x, (scale, bias) = rng.standard_normal(shape).astype(np.float32) + np.float32(mean), rng.standard_normal((2, shape[1]))
    scale, bias = scale.astype(np.float32), bias.astype(np.float32)
    got = bench.run_one(InstanceNormalization(), (x, scale, bias), bench.kernel("instance_normalization", "planes"))
    each = (-1, *(1,) * (len(shape) - 2))
    want = exact(x, tuple(range(2, len(shape)))) * scale.reshape(each) + bias.reshape(each)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (5, 130), (3, 2, 1001)])
@pytest.mark.parametrize("mean", [0, 100])
def test_layer_normalization(bench, shape, mean):
    rng = np.random.default_rng(shape[-1])
    x, scale = (
        rng.standard_normal(shape).astype(np.float32) + np.float32(mean),
        rng.standard_normal(shape[-1:]).astype(np.float32),
    )
    got = bench.run_one(LayerNormalization(), (x, scale), bench.kernel("layer_normalization", "rows"))
    np.testing.assert_allclose(got, exact(x, -1) * scale, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_log_softmax(bench, axis):
    x = np.random.default_rng(axis).standard_normal((3, 4, 501)).astype(np.float32) * 30
    got = bench.run_one(LogSoftmax(axis=axis), (x,), bench.kernel("log_softmax", "exp"))
    shifted = x.astype(np.float64) - x.max(axis, keepdims=True)
    np.testing.assert_allclose(got, shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)), rtol=1e-5, atol=1e-5)
