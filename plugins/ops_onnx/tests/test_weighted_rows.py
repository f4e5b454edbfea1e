"""Weighted sums of gathered elements: few and many channels, in parts, and the operators that are made of them."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx import _gathered_rows, _roi_align, _weighted_rows, grid_sample
from dovetail_ops_onnx._weighted_rows import channels_last, joined, weighted_planes, weighted_rows
from dovetail_ops_onnx.deform_conv import DeformConv
from dovetail_ops_onnx.grid_sample import GridSample
from dovetail_ops_onnx.roi_align import RoiAlign

_channels = pytest.mark.parametrize("channels", [0, 1, 7, 8, 19])


@_channels
@pytest.mark.parametrize("border", [0, 2])
@pytest.mark.parametrize("sides", [(4, 5), (32, 16), (28, 28)])  # of the second and the third with borders 4 KB
def test_channels_last(rng: np.random.Generator, channels: int, border: int, sides: tuple[int, int]) -> None:
    x = rng.standard_normal((3, channels, *sides))
    rows = channels_last(x, border)
    padded = np.pad(x, [(0, 0), (0, 0), (border, border), (border, border)])
    np.testing.assert_array_equal(rows, np.moveaxis(padded, 1, -1).reshape(len(rows), channels))


@_channels
@pytest.mark.parametrize("part", [1, 100, _weighted_rows._PART])
@pytest.mark.parametrize("largest", [False, True])
def test_sums(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, channels: int, part: int, largest: bool) -> None:
    monkeypatch.setattr(_weighted_rows, "_PART", part)
    x = rng.standard_normal((2, channels, 3, 4)).astype(np.float32)
    index, weight = rng.integers(0, 24, (5, 11)), rng.standard_normal((5, 11))
    got = weighted_rows(channels_last(x, 0), (index, weight), largest)
    want = np.zeros((11, channels))
    for place, channel in np.ndindex(*want.shape):
        found = [
            float(x[i // 12, channel, i // 4 % 3, i % 4]) * w for i, w in zip(index[:, place], weight[:, place], strict=True)
        ]
        want[place, channel] = max(found) if largest else sum(found)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@_channels
@pytest.mark.parametrize("part", [1, 100, _weighted_rows._PART])
def test_sums_of_planes(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, channels: int, part: int) -> None:
    monkeypatch.setattr(_weighted_rows, "_PART", part)
    monkeypatch.setattr(_weighted_rows, "_PLACES", min(part, 4))  # the last part of 11 is smaller
    planes, index = rng.standard_normal((channels, 24)).astype(np.float32), rng.integers(0, 24, (4, 11))
    weight = rng.standard_normal((4, 11))
    got = weighted_planes(planes, (index, weight))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, (planes[:, index] * weight).sum(1), rtol=1e-5, atol=1e-5)


def test_linear_samples_leave_channels_where_they_are(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(grid_sample, "channels_last")
    x, grid = rng.standard_normal((2, 32, 80, 80)), rng.uniform(-1, 1, (2, 5, 4, 2))
    assert GridSample().reference(x, grid).shape == (2, 32, 5, 4)


@pytest.mark.skipif(_gathered_rows.native() is None, reason="no AVX2 and FMA, or no executable memory")
@pytest.mark.parametrize("channels", [8, 24, 32, 72])
@pytest.mark.parametrize(("taps", "places"), [(1, 1), (4, 7), (16, 3), (0, 2)])
def test_sums_by_machine_code(rng: np.random.Generator, channels: int, taps: int, places: int) -> None:
    rows, memory = rng.standard_normal((10, channels)).astype(np.float32), np.full((places + 2, channels), np.nan, np.float32)
    index, weight = rng.integers(0, 10, (places, taps)).T, rng.standard_normal((taps, places))  # in any order
    assert _gathered_rows.takes(rows)
    _gathered_rows.add_up(rows, index, weight, memory[1:-1])
    want = (rows[index].astype(np.float64) * weight[..., None]).sum(0)
    np.testing.assert_allclose(memory[1:-1], want, rtol=1e-5, atol=1e-5)
    assert np.isnan(memory[[0, -1]]).all()


@pytest.mark.skipif(_gathered_rows.native() is None, reason="no AVX2 and FMA, or no executable memory")
@pytest.mark.parametrize("index", [-1, 10, 1 << 62])
def test_machine_code_reads_rows_only(index: int) -> None:
    with pytest.raises(IndexError, match="outside of 10 rows"):
        _gathered_rows.add_up(
            np.zeros((10, 8), np.float32), np.array([[0, index]]), np.ones((1, 2)), np.zeros((2, 8), np.float32)
        )


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_rows_that_machine_code_leaves_to_numpy(dtype: type) -> None:
    assert not _gathered_rows.takes(np.zeros((2, 8), dtype))
    assert not _gathered_rows.takes(np.zeros((2, 12), np.float32))
    assert not _gathered_rows.takes(np.zeros((8, 2), np.float32).T)


@pytest.mark.parametrize("side", [32, 7])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("wrong", [None, np.nan, np.inf])
def test_linear_samples_of_many_places(rng: np.random.Generator, side: int, padding: str, wrong: float | None) -> None:
    """In float32, where channels are brought together, as in float64, where they are not."""
    x, grid = (
        rng.standard_normal((3, 16, side, side)).astype(np.float32),
        rng.uniform(-1.3, 1.3, (3, 40, 9, 2)).astype(np.float32),
    )
    if wrong is not None:
        x[1, 3, 2, 4] = wrong
    op = GridSample(padding_mode=padding)
    y = np.full((3, 16, 40, 9), np.nan, np.float32)
    op.write(y, x, grid)
    want = op.reference(x.astype(np.float64), grid)
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(want))
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def test_no_place(rng: np.random.Generator) -> None:
    for channels in (2, 9):
        rows = channels_last(rng.standard_normal((1, channels, 3)), 0)
        assert weighted_rows(rows, (np.zeros((4, 0), np.int64), np.zeros((4, 0)))).shape == (0, channels)


def test_taps_of_three_axes() -> None:
    index, weight = joined([(np.array([[1], [2]]), np.array([[0.5], [0.25]])), (np.array([[3]]), np.array([[8.0]]))], [4, 7])
    assert index.tolist() == [[10], [17]]
    assert weight.tolist() == [[4.0], [2.0]]
    index, _ = joined([(np.array([[1]]), np.ones((1, 1)))] * 2 + [(np.array([[0], [2]]), np.ones((2, 1)))], [2, 3, 5])
    assert index.tolist() == [[20], [22]]


@_channels
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, channels: int, mode: str, padding: str) -> None:
    """Channel by channel and place by place as all at once."""
    op = GridSample(mode=mode, padding_mode=padding)
    x = rng.standard_normal((3, channels, 5, 6)).astype(np.float32)
    grid = rng.uniform(-1.5, 1.5, (3, 4, 7, 2)).astype(np.float32)
    x.flags.writeable = grid.flags.writeable = False
    got = op.reference(x, grid)
    assert got.shape == (3, channels, 4, 7)
    for part, image in ((3, 1 << 18), (60, 1), (60, 1 << 18)):  # parts of an image, one, two
        monkeypatch.setattr(grid_sample, "_PART", part)
        monkeypatch.setattr(grid_sample, "_IMAGE", image)
        monkeypatch.setattr(grid_sample, "_COPIED", image)
        for channel in range(channels):
            alone = op.reference(x[:, channel : channel + 1], grid)
            np.testing.assert_allclose(got[:, channel : channel + 1], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, mode: str, ratio: int) -> None:
    """A box alone, of which only the elements that it reads are gathered, gives what it gives among many, in parts or not."""
    op = RoiAlign(mode=mode, output_height=3, output_width=2, sampling_ratio=ratio)
    x = rng.standard_normal((2, 9, 40, 30)).astype(np.float32)
    corners = rng.uniform(-3, 25, (60, 2))
    rois = np.concatenate((corners, corners + rng.uniform(-1, 15, (60, 2))), 1).astype(np.float32)
    images = rng.integers(0, 2, 60)
    together = op.reference(x, rois, images)
    assert together.any()
    monkeypatch.setattr(_roi_align, "_PART", 300)
    np.testing.assert_array_equal(op.reference(x, rois, images), together)
    for n in range(60):
        alone = op.reference(x, rois[n : n + 1], images[n : n + 1])
        np.testing.assert_allclose(alone[0], together[n], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mode", "ratio"), [("avg", 0), ("max", 0), ("avg", 300)])
def test_boxes_far_larger_than_the_image(rng: np.random.Generator, mode: str, ratio: int) -> None:
    """Samples outside are not computed: a box of 10^9 elements would have 10^17 of them."""
    op = RoiAlign(mode=mode, output_height=3, output_width=2, sampling_ratio=ratio)
    x = rng.uniform(-1, 1, (1, 1, 5, 7)).astype(np.float32)
    rois = np.float32([[-200, -300, 700, 650], [1, 0, 2, 1]])

    def axis(low: float, high: float, bins: int, size: int) -> tuple[Any, Any]:
        count = ratio or int(np.ceil((high - low) / bins))
        at = low - 0.5 + (np.arange(bins * count) + 0.5) * (high - low) / bins / count
        inside, at = (at >= -1) & (at <= size), np.clip(at, 0, size - 1)
        weights = np.maximum(0, 1 - abs(at[:, None] - np.arange(size))) * inside[:, None]
        return weights.reshape(bins, count, size), count

    for roi, got in zip(rois, op.reference(x, rois, np.zeros(2, np.int64)), strict=True):
        (down, ny), (across, nx) = axis(roi[1], roi[3], 3, 5), axis(roi[0], roi[2], 2, 7)
        each = down[:, None, :, None, :, None] * across[None, :, None, :, None] * x[0, 0]
        # A sample that is outside, or has fewer than four neighbours, takes zeros.
        want = each.sum((2, 3, 4, 5)) / (nx * ny) if mode == "avg" else np.maximum(each.max((2, 3, 4, 5)), 0)
        np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-6)
    if not ratio:
        tracemalloc.start()
        found = op.reference(x, np.float32([[-5e8, -5e8, 5e8, 5e8], [0, 0, 3e38, 3e38]]), np.zeros(2, np.int64))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert np.isfinite(found).all()
        assert peak < 1 << 24


def _infinite(*shape: int) -> Any:
    return np.full(shape, np.inf, np.float32)


@pytest.mark.parametrize("channels", [1, 9])
def test_what_is_outside_is_zero_beside_infinities(channels: int) -> None:
    x = _infinite(1, channels, 4, 4)
    y = GridSample().reference(x, np.full((1, 2, 2, 2), 9, np.float32))
    np.testing.assert_array_equal(y, np.zeros((1, channels, 2, 2)))
    offset = np.full((1, 2, 4, 4), -7, np.float32)
    offset[..., 0] = np.nan
    y = DeformConv().reference(x, np.ones((1, channels, 1, 1), np.float32), offset)
    np.testing.assert_array_equal(y, np.zeros((1, 1, 4, 4)))
