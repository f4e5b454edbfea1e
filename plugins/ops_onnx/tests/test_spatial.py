"""The arithmetic of sliding windows against brute force: count the window positions that fit, one by one."""

import numpy as np
import pytest

from dovetail.errors import OperatorError, ShapeError
from dovetail_ops_onnx import _windows
from dovetail_ops_onnx._windows import windows
from dovetail_ops_onnx.spatial import AUTO_PADS, ConvGeometry, conv_geometry, conv_transpose_geometry


def _positions(size: int, kernel: int, step: int, gap: int, begin: int, end: int, ceil_mode: bool) -> int:
    """Slide the window and count. It must be inside the padded input; with ceil_mode it must begin before the padding at the
    end, and may reach beyond it when the window before did not reach it."""
    count, first = 0, -begin
    while True:
        last = first + (kernel - 1) * gap
        fits = last < size + end
        if ceil_mode:
            fits = first < size and (fits or (count > 0 and last - step < size + end - 1))
        if not fits:
            return count
        count, first = count + 1, first + step


def test_output_sizes_of_random_windows() -> None:
    rng = np.random.default_rng(3)
    for _ in range(2000):
        size, kernel, step, gap = (int(rng.integers(1, top)) for top in (20, 5, 5, 4))
        begin, end = (int(n) for n in rng.integers(0, 4, 2))
        ceil_mode = bool(rng.integers(2))
        extent = (kernel - 1) * gap + 1
        if extent > size + begin + end or (ceil_mode and end > extent):
            continue
        g = conv_geometry([size], [kernel], strides=[step], dilations=[gap], pads=[begin, end], ceil_mode=ceil_mode)
        assert g.output == (_positions(size, kernel, step, gap, begin, end, ceil_mode),), g
        assert g.overhang == (max(0, (g.output[0] - 1) * step + (kernel - 1) * gap + 1 - begin - size),)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_covers_the_input_with_the_least_padding(auto_pad: str) -> None:
    for size in range(1, 12):
        for kernel in range(1, 6):
            for step in range(1, 5):
                g = conv_geometry([size], [kernel], strides=[step], auto_pad=auto_pad)
                assert g.output == (-(-size // step),)
                total = g.pads_begin[0] + g.pads_end[0]
                assert total == max(0, (g.output[0] - 1) * step + kernel - size)
                more, less = (g.pads_end, g.pads_begin) if auto_pad == "SAME_UPPER" else (g.pads_begin, g.pads_end)
                assert 0 <= more[0] - less[0] <= 1


def test_a_transposed_convolution_undoes_the_size_of_a_convolution() -> None:
    for size in range(3, 15):
        for step in range(1, 4):
            forward = conv_geometry([size], [3], strides=[step], pads=[1, 1])
            lost = (size + 2 - 3) % step
            back = conv_transpose_geometry(forward.output, [3], strides=[step], pads=[1, 1], output_padding=[lost])
            assert back.output == (size,)


def test_windows_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The padded array is not made where few of its elements are read: they are the same."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    for _ in range(200):
        kernel, strides, dilations = (rng.integers(1, top, 2).tolist() for top in (4, 40, 9))
        pads = rng.integers(0, 60, 4).tolist()
        try:
            g = conv_geometry(x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads)
        except (OperatorError, ShapeError):
            continue
        padded = windows(x, g, -1.5)
        with monkeypatch.context() as patch:
            patch.setattr(_windows, "_SPARSE", 0)
            np.testing.assert_array_equal(windows(x, g, -1.5), padded)
    g = conv_geometry([4, 5], [1, 1], strides=[10**9, 1], pads=[10**9, 0, 10**9, 0])
    want = np.zeros((2, 3, 3, 5), np.float32)
    want[:, :, 1] = x[:, :, 0]
    np.testing.assert_array_equal(windows(x, g, 0)[..., 0, 0], want)


def test_a_stride_beyond_64_bits_of_bytes() -> None:
    x = np.arange(20, dtype=np.float32).reshape(1, 1, 4, 5)
    g = conv_geometry([4, 5], [1, 1], strides=[2**63 - 1, 1])
    np.testing.assert_array_equal(windows(x, g, 0)[..., 0, 0], x[:, :, :1])


def test_properties() -> None:
    assert conv_geometry([5, 7], [1, 1]).is_pointwise
    assert not conv_geometry([5, 7], [1, 1], strides=[2, 1]).is_pointwise
    assert conv_geometry([8, 8], [4, 4], strides=[4, 4]).is_dense
    assert not conv_geometry([5], [3], pads=[0, 2]).is_dense
    assert conv_geometry([5], [2], strides=[2], pads=[0, 0]).is_dense
    g = conv_geometry([9, 9], [3, 2], dilations=[2, 3])
    assert (g.rank, g.extent, g.kernel_size) == (2, (5, 4), 6)


def test_an_axis_of_size_0() -> None:
    assert conv_geometry([0, 4], [3, 3]).output == (0, 2)
    assert conv_geometry([0], [3], pads=[1, 1]).output == (0,)
    assert conv_transpose_geometry([0], [3]).output == (0,)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"strides": [0, 1]}, "strides"),
        ({"strides": [1]}, "strides"),
        ({"dilations": [1, 0]}, "dilations"),
        ({"pads": [1, 1]}, "pads"),
        ({"pads": [0, 0, -1, 0]}, "pads"),
        ({"auto_pad": "SAME"}, "auto_pad"),
        ({"kernel": [3]}, "kernel_shape"),
        ({"kernel": [3, 0]}, "kernel_shape"),
    ],
)
def test_attributes_out_of_range_are_named_with_what_is_accepted(given: dict[str, list[int]], names: str) -> None:
    arguments = {"kernel": [3, 3], **given}
    for geometry in (conv_geometry, conv_transpose_geometry):
        with pytest.raises(OperatorError, match=rf"'{names}' is .*"):
            geometry([8, 8], **arguments)


def test_a_window_larger_than_the_padded_input() -> None:
    with pytest.raises(ShapeError, match=r"window of 5 elements .* does not fit into 3 \+ pads 0 \+ 1"):
        conv_geometry([3], [3], dilations=[2], pads=[0, 1])


@pytest.mark.parametrize(
    ("auto_pad", "pads", "sizes"),
    [("NOTSET", (0, 0), (4, 6)), ("VALID", (0, 0), (4, 6)), ("SAME_UPPER", (0, 1), (5, 5)), ("SAME_LOWER", (1, 0), (5, 5))],
)
def test_every_auto_pad_is_taken(auto_pad: str, pads: tuple[int, int], sizes: tuple[int, int]) -> None:
    """Of 5 elements a window of two makes 4, transposed 6, and as many with `SAME`."""
    geometries = [make([5], [2], auto_pad=auto_pad) for make in (conv_geometry, conv_transpose_geometry)]
    assert tuple(g.output[0] for g in geometries) == sizes
    assert (geometries[0].pads_begin[0], geometries[0].pads_end[0]) == pads


def test_no_auto_pad_is_forgotten() -> None:
    assert set(AUTO_PADS) == {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("pads", [(0, 30), (30, 0), (17, 17), (4, 3)])
def test_trimmed_windows_read_the_same_elements(stride: int, dilation: int, pads: tuple[int, int]) -> None:
    """Kernel elements that are outside in every window are dropped; of the others the places stay."""

    def places(g: ConvGeometry) -> list[list[int]]:
        windows = [[o * stride - g.pads_begin[0] + k * dilation for k in range(g.kernel[0])] for o in range(g.output[0])]
        return [[place for place in window if 0 <= place < 7] for window in windows]

    geometry = conv_geometry((7,), (11,) if dilation == 1 else (4,), strides=(stride,), dilations=(dilation,), pads=pads)
    assert places(geometry.trimmed) == places(geometry)
    assert geometry.trimmed.output == geometry.output


def test_trimmed_keeps_what_reaches_the_input() -> None:
    wide = conv_geometry((10,), (10**8,), auto_pad="SAME_UPPER").trimmed
    assert wide.kernel[0] < 30
    assert wide.pads_begin[0] < 20
