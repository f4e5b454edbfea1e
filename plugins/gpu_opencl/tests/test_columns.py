"""Convolutions of few channels and maximum pooling by rows, for CPUs, against float64 and NumPy."""

from typing import Any

import numpy as np
import pytest

from dovetail.device import Eltwise

SAMPLED = pytest.mark.exhaustive(0.25)  # each compiles programs

SIZES = [(1, 1, 1, 4, 3), (10, 3, 4, 33, 4), (5, 2, 3, 19, 1), (12, 3, 5, 40, 2)]  # maps, channels, kernel, width, stride


@SAMPLED
@pytest.mark.parametrize(("maps", "channels", "kernel", "width", "stride"), SIZES)
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
def test_few_maps_by_columns(
    maps: int, channels: int, kernel: int, width: int, stride: int, pads: Any, kind_device: Any, bench: Any, rng: Any
) -> None:
    x = rng.standard_normal((2, 2 * channels, 7, width)).astype(np.float32)
    w = rng.standard_normal((2 * maps, channels, kernel, kernel)).astype(np.float32)
    b = rng.standard_normal(2 * maps).astype(np.float32)
    expected = np.maximum(bench.convolve(x, w, stride, pads, 2) + b[:, None, None], 0)
    op = bench.op("Conv", group=2, strides=(stride,) * 2, pads=pads)
    graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=[Eltwise("relu")])
    device = kind_device("CPU")
    device.forced = "conv_columns"
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * max(1.0, float(expected.max())))


@SAMPLED
@pytest.mark.parametrize("forced", ["conv_columns", "conv_depthwise", "conv_direct", "conv_rows"])
@pytest.mark.parametrize("weight", [np.inf, np.nan])
def test_weights_that_are_not_finite_meet_the_padding(forced: str, weight: float, kind_device: Any, bench: Any, rng: Any) -> None:
    """The padding is zeros that are multiplied: 0 times infinity is NaN on all four sides, in vectors and in single pixels."""
    groups = 3 if forced == "conv_depthwise" else 1
    x = rng.standard_normal((2, 3, 7, 21)).astype(np.float32)
    w = rng.standard_normal((9, 3 // groups, 3, 3)).astype(np.float32)
    w[0, 0, 0, 0] = w[4, 0, 2, 2] = weight
    with np.errstate(invalid="ignore"):
        expected = bench.convolve(x, w, 1, (1, 1, 1, 1), groups)
    assert np.isnan(expected[:, [0, 4]]).sum() > 0
    graph, feeds = bench.single(bench.op("Conv", group=groups, pads=(1, 1, 1, 1)), [x, w], (1,))
    device = kind_device("CPU")
    device.forced = forced
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@SAMPLED
@pytest.mark.parametrize(("kernel", "width", "stride"), [(1, 1, 1), (2, 34, 2), (3, 17, 1), (3, 35, 3)])
def test_max_pool_by_rows(kernel: int, width: int, stride: int, kind_device: Any, bench: Any, rng: Any) -> None:
    """With NaN, which wins, and windows that leave the input on all sides."""
    x = rng.standard_normal((2, 3, 7, width)).astype(np.float32)
    x[0, 1, 2, width // 2] = np.nan
    pads = (kernel // 2,) * 4
    wide = np.pad(x, ((0, 0), (0, 0), (pads[0],) * 2, (pads[0],) * 2), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    graph, feeds = bench.single(bench.op("MaxPool", kernel_shape=(kernel,) * 2, strides=(stride,) * 2, pads=pads), [x])
    device = kind_device("CPU")
    device.forced = "max_pool_rows"
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    np.testing.assert_array_equal(got, windows.max((-1, -2)))
