"""Convolution and pooling on random geometries, each kernel forced, against direct computation in float64."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernels import _rows, _windows
from dovetail_cpu_numpy.kernels._conv import Taps
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import conv_geometry


def windows(x, g, fill):
    """x [N, C, *input] as [N, C, *output, *kernel] in float64, with `fill` outside."""
    pads = [(0, 0), (0, 0), *zip(g.pads_begin, g.overhang, strict=True)]
    return strided(np.pad(x.astype(np.float64), pads, constant_values=fill), g)


def strided(x, g):
    """The windows of x, which is padded already."""
    steps = [s * n for s, n in zip(g.strides, x.strides[2:], strict=True)]
    gaps = [d * n for d, n in zip(g.dilations, x.strides[2:], strict=True)]
    return as_strided(x, (*x.shape[:2], *g.output, *g.kernel), (*x.strides[:2], *steps, *gaps))


def counted(g, include_pad):
    """[1, 1, *padded]: 1 for the elements that an average counts, 0 for the others that windows reach."""
    inside = np.ones((1, 1, *g.input))
    declared = [(0, 0), (0, 0), *zip(g.pads_begin, g.pads_end, strict=True)]
    beyond = [(0, 0), (0, 0), *((0, max(0, o - e)) for o, e in zip(g.overhang, g.pads_end, strict=True))]
    return np.pad(np.pad(inside, declared, constant_values=float(include_pad)), beyond)


def conv64(x, w, b, g, group):
    n, rank = x.shape[0], g.rank
    view = windows(x, g, 0).reshape(n, group, w.shape[1], *g.output, *g.kernel)
    wei = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    spatial, kernel = "xyz"[:rank], "ijk"[:rank]
    y = np.einsum(f"ngc{spatial}{kernel},gmc{kernel}->ngm{spatial}", view, wei).reshape(n, w.shape[0], *g.output)
    return y if b is None else y + b.astype(np.float64).reshape(-1, *(1,) * rank)


def random_geometry(rng, rank):
    """Sizes, and the attributes of a window that fits."""
    kernel = [int(k) for k in rng.choice([1, 2, 3, 5], rank)]
    attributes = {
        "strides": tuple(int(s) for s in rng.integers(1, 4, rank)),
        "dilations": tuple(int(d) for d in rng.integers(1, 4, rank)),
        "pads": tuple(int(p) for p in rng.integers(0, 4, 2 * rank)),
    }
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, attributes["dilations"], strict=True)]
    sizes = [int(rng.integers(max(1, e - 2), e + 9)) for e in extent]
    pads = [attributes["pads"][a] + attributes["pads"][rank + a] for a in range(rank)]
    sizes = [max(s, e - p) for s, e, p in zip(sizes, extent, pads, strict=True)]
    return tuple(sizes), tuple(kernel), attributes


def check_conv(bench, rng, rank, kernel_name, group, constant):
    sizes, window, attributes = random_geometry(rng, rank)
    if kernel_name == "pointwise":
        window, attributes = (1,) * rank, {}
    channels, maps = (1, 1) if kernel_name == "depthwise" else (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    x = rng.standard_normal((int(rng.integers(0, 4)), group * channels, *sizes)).astype(np.float32)
    w = rng.standard_normal((group * maps, channels, *window)).astype(np.float32)
    b = rng.standard_normal(group * maps).astype(np.float32) if rng.integers(2) else None
    kernel = bench.kernel("conv", kernel_name)
    got = bench.run_one(Conv(group=group, **attributes), (x, w, b), kernel, constants=(1, 2) if constant else ())
    want = conv64(x, w, b, conv_geometry(sizes, window, **attributes), group)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("kernel", "rank"),
    [
        *itertools.product(("pointwise", "depthwise", "shifted_rows"), (1, 2)),
        ("pointwise", 3),
        ("shifted_rows", 3),
    ],
)
def test_conv(bench, kernel, rank, seed):
    constant = kernel == "depthwise" or seed % 4 > 0
    check_conv(bench, np.random.default_rng(seed), rank, kernel, group=1 + seed % 3, constant=constant)


@pytest.mark.parametrize("size", [16, 17, 32, 45])
@pytest.mark.parametrize("kernel", [5, 8, 31])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("images", [0, 1, 3])
def test_bands(bench, size, kernel, stride, images):
    """Outputs that fill the last tile or not, inputs that end before and after it, and an infinity among zeros of a band."""
    rng = np.random.default_rng(size)
    pads = tuple(int(n) for n in rng.integers(0, kernel // 2 + 1, 2))
    length = (size - 1) * stride + kernel - sum(pads) + int(rng.integers(stride))
    x, w = rng.standard_normal((images, 3, length)).astype(np.float32), rng.standard_normal((3, 1, kernel)).astype(np.float32)
    b = rng.standard_normal(3).astype(np.float32)
    g = conv_geometry((length,), (kernel,), strides=(stride,), pads=pads)
    for infinite in (False, True):
        if infinite and images:
            x[-1, -1, length // 2] = np.inf
        op = Conv(group=3, strides=(stride,), pads=pads)
        got = bench.run_one(op, (x, w, b), bench.kernel("conv", "banded"), constants=(1, 2))
        np.testing.assert_allclose(got, conv64(x, w, b, g, 3), rtol=1e-4, atol=1e-4)


EXTREME = [
    ((1, 1), (3, 3), {"pads": (0, 0, 2, 2)}),
    ((1, 1), (3, 3), {"pads": (2, 2, 0, 0)}),
    ((2, 2), (1, 11), {"pads": (0, 5, 0, 5)}),
    ((2, 2), (11, 1), {"pads": (5, 0, 5, 0)}),
    ((1, 2), (3, 2), {"pads": (0, 3, 4, 3), "dilations": (2, 3), "strides": (1, 2)}),
    ((7, 1), (2, 5), {"pads": (0, 4, 0, 4), "strides": (3, 4)}),
]
"""Sizes, kernel, attributes: windows that are entirely in the padding, or reach further than the input is wide."""


@pytest.mark.parametrize(("sizes", "window", "attributes"), EXTREME)
def test_windows_beyond_the_input(bench, sizes, window, attributes):
    rng = np.random.default_rng(8)
    g = conv_geometry(sizes, window, **attributes)
    x = rng.standard_normal((2, 4, *sizes)).astype(np.float32)
    for name, group, channels in (("depthwise", 4, 1), ("shifted_rows", 1, 4), ("shifted_rows", 2, 2)):
        w = rng.standard_normal((4, channels, *window)).astype(np.float32)
        got = bench.run_one(Conv(group=group, **attributes), (x, w), bench.kernel("conv", name), constants=(1,))
        np.testing.assert_allclose(got, conv64(x, w, None, g, group), rtol=1e-4, atol=1e-5, err_msg=name)
    got = bench.run_one(MaxPool(kernel_shape=window, **attributes), (x,), bench.kernel("max_pool", "separable"))
    np.testing.assert_array_equal(got, windows(x, g, -np.inf).max(axis=(-1, -2)).astype(np.float32))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("images", [1, 3])
def test_pointwise_on_one_pixel(bench, images, group):
    rng = np.random.default_rng(9)
    x = rng.standard_normal((images, 6, 1, 1)).astype(np.float32)
    w = rng.standard_normal((4, 6 // group, 1, 1)).astype(np.float32)
    got = bench.run_one(Conv(group=group), (x, w), bench.kernel("conv", "pointwise"))
    np.testing.assert_allclose(got, conv64(x, w, None, conv_geometry((1, 1), (1, 1)), group), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("depth", [0, 1000])
@pytest.mark.parametrize("rank", [2, 3])
def test_conv_in_blocks_of_rows(bench, monkeypatch, seed, depth, rank):
    """The output a row or a few at a time; products of kernel rows added up, or one product of all."""
    monkeypatch.setattr(_rows, "BUDGET", 4000)
    monkeypatch.setattr(_rows, "MIN_DEPTH", depth)
    check_conv(bench, np.random.default_rng(100 + seed), rank, "shifted_rows", group=1 + seed % 2, constant=seed % 3 > 0)


@pytest.mark.parametrize("pads", [(2, 0, 3, 0, 4, 0), (0, 3, 0, 5, 0, 2)])
@pytest.mark.parametrize("group", [1, 2])
def test_windows_beyond_a_volume(bench, pads, group):
    """Windows that are entirely in the padding along each of three axes."""
    rng = np.random.default_rng(28)
    x, w = (
        rng.standard_normal((2, 4, 1, 2, 3)).astype(np.float32),
        rng.standard_normal((6, 4 // group, 2, 3, 2)).astype(np.float32),
    )
    got = bench.run_one(Conv(group=group, pads=pads), (x, w), bench.kernel("conv", "shifted_rows"), constants=(1,))
    want = conv64(x, w, None, conv_geometry((1, 2, 3), (2, 3, 2), pads=pads), group)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("budget", "short"), [(1 << 24, 64), (200, 64), (200, 0)])
def test_conv_over_windows_of_one_axis(bench, monkeypatch, seed, budget, short):
    """All images at once or some at a time; one product of several images, or one for each."""
    monkeypatch.setattr(_windows, "BUDGET", budget)
    monkeypatch.setattr(_windows, "SHORT", short)
    check_conv(bench, np.random.default_rng(300 + seed), 1, "windows", group=1, constant=seed % 3 > 0)


def test_windows_beyond_an_input_of_one_axis(bench):
    """Windows that are entirely in the padding, that skip the last elements, or are longer than the input."""
    rng = np.random.default_rng(18)
    for size, window, attributes in (
        (2, 5, {"pads": (7, 9)}),
        (1, 3, {"pads": (0, 4), "dilations": (2,)}),
        (11, 2, {"strides": (4,)}),
        (3, 9, {"pads": (3, 3), "strides": (2,)}),
    ):
        x = rng.standard_normal((3, 4, size)).astype(np.float32)
        w = rng.standard_normal((5, 4, window)).astype(np.float32)
        got = bench.run_one(Conv(**attributes), (x, w), bench.kernel("conv", "windows"), constants=(1,))
        want = conv64(x, w, None, conv_geometry((size,), (window,), **attributes), 1)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_conv_infinities_stay_where_they_are(bench):
    """An infinite element reaches exactly the windows that hold it, through every kernel."""
    rng = np.random.default_rng(3)
    for name, group, channels, window in (("depthwise", 3, 1, 3), ("shifted_rows", 1, 3, 3), ("pointwise", 1, 3, 1)):
        x = rng.standard_normal((1, 3, 9, 8)).astype(np.float32)
        x[0, 1, 4, 7] = np.inf
        w = np.abs(rng.standard_normal((3, channels, window, window))).astype(np.float32) + 0.1
        pads = (window // 2,) * 4
        got = bench.run_one(Conv(group=group, pads=pads), (x, w), bench.kernel("conv", name), constants=(1,))
        want = conv64(x, w, None, conv_geometry((9, 8), (window, window), pads=pads), group)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=name)


def test_conv_with_four_axes_is_left_to_the_reference(bench):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((1, 2, 4, 5, 6, 2)).astype(np.float32)
    w = rng.standard_normal((3, 2, 3, 2, 3, 1)).astype(np.float32)
    executable = bench.executable(bench.single(Conv(), (x, w), constants=(1,))[0])
    assert executable.reports[0].kernel == "ref"
    assert [name for name, _ in executable.reports[0].refusals] == [
        "pointwise",
        "banded",
        "depthwise",
        "windows",
        "shifted_rows",
        "view",
        "post_ops",
    ]
    (got,) = bench.run_twice(executable, [x])
    two = [conv64(x[..., k], w[..., 0], None, conv_geometry((4, 5, 6), (3, 2, 3)), 1) for k in range(2)]
    np.testing.assert_allclose(got, np.stack(two, axis=-1), rtol=1e-4, atol=1e-5)


def test_conv_takes_the_cheapest_kernel(bench):
    """1x1, depthwise and 3x3 each go to the kernel that is made for them."""
    x = np.zeros((1, 4, 6, 6), np.float32)
    for op, shape, name in (
        (Conv(), (5, 4, 1, 1), "pointwise"),
        (Conv(group=4), (4, 1, 3, 3), "depthwise"),
        (Conv(strides=(2, 2)), (5, 4, 1, 1), "shifted_rows"),
        (Conv(), (5, 4, 3, 3), "shifted_rows"),
    ):
        graph = bench.single(op, (x, np.ones(shape, np.float32)), constants=(1,))[0]
        assert bench.executable(graph).reports[0].kernel == name


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("op_type", [MaxPool, AveragePool])
def test_pool(bench, op_type, seed):
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    sizes, window, attributes = random_geometry(rng, rank)
    attributes["ceil_mode"] = bool(rng.integers(2))
    stem = op_type.stem
    x = rng.standard_normal((int(rng.integers(0, 3)), 3, *sizes)).astype(np.float64 if seed % 5 == 0 else np.float32)
    if x.size:
        x.reshape(-1)[0] = np.nan
    g = conv_geometry(sizes, window, **attributes)
    axes = tuple(range(-rank, 0))
    if op_type is MaxPool:
        want = windows(x, g, -np.inf).max(axis=axes)
    else:
        attributes["count_include_pad"] = bool(rng.integers(2))
        count = strided(counted(g, attributes["count_include_pad"]), g).sum(axis=axes)
        with np.errstate(invalid="ignore"):
            want = windows(x, g, 0).sum(axis=axes) / count
    got = bench.run_one(op_type(kernel_shape=window, **attributes), (x,), bench.kernel(stem, "separable"))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("attributes", [{}, {"pads": (1, 2, 1, 2), "strides": (2, 1)}, {"dilations": (1, 2), "strides": (1, 3)}])
def test_pool_of_integers(bench, dtype, attributes):
    x = np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, 3, 9, 11), dtype, endpoint=True)
    want = windows(x.astype(np.float64), conv_geometry((9, 11), (3, 4), **attributes), -np.inf).max(axis=(-2, -1))
    got = bench.run_one(MaxPool(kernel_shape=(3, 4), **attributes), (x,), bench.kernel("max_pool", "separable"))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kernel", range(1, 12))
@pytest.mark.parametrize("op_type", [MaxPool, AveragePool])
def test_pool_of_rows_that_follow_each_other(bench, op_type, kernel):
    """Windows of every length over narrow rows, with and without padding: the greatest of the next row is larger."""
    x = np.arange(2 * 3 * 5 * 12, dtype=np.float32).reshape(2, 3, 5, 12)
    for pads, stride in (((0, 0), 1), ((kernel // 2, kernel // 2), 1), ((kernel - 1, 0), 2)):
        attributes = {"pads": (0, pads[0], 0, pads[1]), "strides": (1, stride)}
        g = conv_geometry((5, 12), (1, kernel), **attributes)
        if op_type is MaxPool:
            want = windows(x, g, -np.inf).max(axis=(-2, -1))
        else:
            want = windows(x, g, 0).sum(axis=(-2, -1)) / kernel
            attributes["count_include_pad"] = True
        got = bench.run_one(op_type(kernel_shape=(1, kernel), **attributes), (x,), bench.kernel(op_type.stem, "separable"))
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_pool_with_indices_is_left_to_the_reference(bench):
    (kernel,) = bench.kernels("max_pool")
    graph = bench.single(MaxPool(kernel_shape=(2,)), (np.zeros((1, 1, 4), np.float32),), outputs=2)[0]
    assert kernel.supports(TypedNode.of(graph.nodes[0], graph)).reason.name == "ATTRIBUTE"


def test_taps_of_a_tall_kernel_take_linear_time():
    """A search among the planes for each kernel row would take hours here."""
    program = (
        "from dovetail_cpu_numpy.kernels._conv import Taps\n"
        "taps = Taps.of(1 << 20, 1 << 21, 1)\n"
        "assert taps.phases == taps.plane == tuple(range(1 << 20)) and taps.extra == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_taps_share_planes_where_rows_meet():
    taps = Taps.of(5, 3, 2)  # rows 0, 2, 4, 6, 8 of the window
    assert (taps.phases, taps.plane, taps.shift) == ((0, 2, 1), (0, 1, 2, 0, 1), (0, 0, 1, 2, 2))
