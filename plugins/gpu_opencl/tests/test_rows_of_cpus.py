"""Kernels whose work items take one element on GPUs and a row, a step, a head, an update or a vector of channels on CPUs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx.resize import Resize

pytestmark = pytest.mark.exhaustive(0.3)  # each test compiles programs

Open = Callable[[str], Any]
KINDS = pytest.mark.parametrize("kind", ["CPU", "GPU"])
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@KINDS
@pytest.mark.parametrize("dims", [(5, 7), (2, 3, 6, 5), (0, 4), (4, 0), (1, 1)])
def test_triangles(dims: tuple[int, ...], kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    x = rng.integers(1, 99, dims).astype(np.int16)
    for upper in (0, 1):
        for k in (0, 2, -3, 99, -99, LEAST, MOST):
            graph, feeds = bench.single(bench.op("Trilu", upper=upper), [x, np.array(k, np.int64)], ())
            limited = int(np.clip(k, -100, 100))
            (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
            np.testing.assert_array_equal(got, (np.triu if upper else np.tril)(x, limited))


@KINDS
@pytest.mark.parametrize("time_axis", [0, 1])
def test_reversed_sequences(time_axis: int, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    for dims in ((5, 4), (3, 6, 2, 3), (4, 3, 0)):
        x = rng.integers(0, 255, dims).astype(np.uint8)
        lengths = rng.integers(0, dims[time_axis] + 1, dims[1 - time_axis])
        op = bench.op("ReverseSequence", time_axis=time_axis, batch_axis=1 - time_axis)
        graph, feeds = bench.single(op, [x, lengths], ())
        (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
        wanted = np.moveaxis(x, 1 - time_axis, 0).copy()
        for sequence, length in zip(wanted, lengths, strict=True):
            sequence[:length] = sequence[:length][::-1].copy()
        np.testing.assert_array_equal(got, np.moveaxis(wanted, 0, 1 - time_axis))


@KINDS
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 6])
def test_turned_heads(turned: int, interleaved: int, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    """The first six of ten elements, or all, at positions given by ids."""
    pairs = (turned or 10) // 2
    x, angles = rng.standard_normal((2, 3, 5, 10)).astype(np.float32), rng.standard_normal((9, pairs)).astype(np.float32)
    cosines, sines, ids = np.cos(angles), np.sin(angles), rng.integers(0, 9, (2, 5))
    op = bench.op("RotaryEmbedding", interleaved=interleaved, rotary_embedding_dim=turned)
    graph, feeds = bench.single(op, [x, cosines, sines, ids], ())
    (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
    wide, (c, s) = x.astype(np.float64), (a.astype(np.float64)[ids][:, None] for a in (cosines, sines))
    real, other = (slice(i, 2 * pairs, 2) if interleaved else slice(i * pairs, (i + 1) * pairs) for i in (0, 1))
    wanted = wide.copy()
    wanted[..., real] = wide[..., real] * c - wide[..., other] * s
    wanted[..., other] = wide[..., other] * c + wide[..., real] * s
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("dims", [(70, 31), (3, 5, 1), (1100,)])
def test_updates_with_open_indices(
    dims: tuple[int, ...], reduction: str, kind: str, kind_device: Open, bench: Any, rng: Any
) -> None:
    """Places that come twice, from the end too, more elements than a work item of a CPU copies."""
    data, places = rng.integers(0, 99, dims).astype(np.float32), rng.integers(-dims[0], dims[0], (40, 1))
    updates = rng.integers(0, 99, (40, *dims[1:])).astype(np.float32)
    graph, feeds = bench.single(bench.op("ScatterND", reduction=reduction), [data, places, updates], ())
    (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
    wanted = data.copy()
    for (place,), update in zip(places, updates, strict=True):
        wanted[place] = update if reduction == "none" else wanted[place] + update
    np.testing.assert_array_equal(got, wanted)


@KINDS
@pytest.mark.parametrize("channels", [1, 7, 8, 21])
def test_pixels_with_channels_innermost(channels: int, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    """Twice as many, between the middle of neighbours: three quarters of the nearer one, and those at the edge."""
    x = rng.standard_normal((2, 3, 5, channels)).astype(np.float32)
    graph, feeds = bench.single(Resize(mode="linear"), [x, None, np.array([1, 2, 2, 1], np.float32)], (2,))
    (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
    wanted = x.astype(np.float64)
    for axis in (1, 2):
        padded = np.pad(wanted, [(1, 1) if a == axis else (0, 0) for a in range(4)], mode="edge")
        size = wanted.shape[axis]
        before, here, after = (np.take(padded, range(i, i + size), axis) for i in range(3))
        parts = np.stack([0.75 * here + 0.25 * before, 0.75 * here + 0.25 * after], axis + 1)
        wanted = parts.reshape([2 * n if a == axis else n for a, n in enumerate(wanted.shape)])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_reductions_before_other_axes(name: str, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    """Neighbouring results around 32, sums of more than 512, two axes apart, single columns, none."""
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "ReduceSum": np.sum,
        "ReduceMean": np.mean,
        "ReduceMax": np.max,
        "ReduceL2": lambda x, axes: np.sqrt(np.sum(x * x, axes)),
        "ReduceLogSum": lambda x, axes: np.log(np.sum(x, axes)),
        "ReduceLogSumExp": lambda x, axes: np.log(np.sum(np.exp(x), axes)),
    }
    for dims, axes in (
        ((3, 31), [0]),
        ((2, 3, 33), [1]),
        ((1030, 40), [0]),
        ((2, 3, 2, 65), [0, 2]),
        ((9, 1), [0]),
        ((4, 0), [0]),
    ):
        x = rng.uniform(0.5, 1.5, dims).astype(np.float32)
        graph, feeds = bench.single(bench.op(name, keepdims=False), [x, np.array(axes, np.int64)], (1,))
        (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
        np.testing.assert_allclose(got, functions[name](x.astype(np.float64), tuple(axes)), rtol=2e-6)


@KINDS
@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int, kind: str, kind_device: Open, bench: Any, rng: Any) -> None:
    x = rng.standard_normal((2, 3, 9, 21)).astype(np.float32)
    graph, feeds = bench.single(bench.op("LpPool", p=p, kernel_shape=(2, 3), strides=(2, 1), pads=(0, 1, 1, 1)), [x], ())
    (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
    padded = np.pad(np.abs(x.astype(np.float64)) ** p, ((0, 0), (0, 0), (0, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))[:, :, ::2]
    np.testing.assert_allclose(got, windows.sum((-1, -2)) ** (1 / p), rtol=1e-5)


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(
    ("dims", "weights", "group"),
    [
        ((2, 5, 9, 7), (33, 5, 3, 3), 1),
        ((1, 6, 8, 8), (10, 3, 3, 2), 2),
        ((1, 4, 11), (17, 4, 5), 1),
        ((1, 2, 5, 6, 4), (7, 2, 2, 3, 3), 1),
    ],
)
def test_convolutions_by_computed_weights(
    dims: Any, weights: Any, group: int, dtype: Any, kind: str, kind_device: Open, bench: Any, rng: Any
) -> None:
    """As by constant ones in float64, written out."""
    x, w = (rng.standard_normal(one).astype(dtype) for one in (dims, weights))
    graph, feeds = bench.single(bench.op("Conv", group=group), [x, w], ())
    (got,) = bench.run(kind_device(kind), graph, feeds, DEBUG_BUFFERS=True)
    axes = tuple(range(2, len(dims)))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), weights[2:], axes)
    parts = zip(np.split(windows, group, 1), np.split(w.astype(np.float64), group), strict=True)
    wanted = [np.tensordot(one, own, ((1, *range(-len(axes), 0)), range(1, len(weights)))) for one, own in parts]
    tolerance = 3e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(got, np.moveaxis(np.concatenate(wanted, -1), -1, 1), rtol=tolerance, atol=10 * tolerance)
