"""Kernels for CPUs of rows of images: average pools, pads, resampling, convolutions in space; against NumPy in float64."""

import itertools
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, Eltwise
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.resize import Resize

pytestmark = pytest.mark.exhaustive(0.25)  # each compiles programs


def averages(x: Any, kernel: tuple[int, int], stride: int, pads: tuple[int, ...], counts_pads: bool) -> Any:
    top, left, bottom, right = pads
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    ones = np.ones if counts_pads else np.zeros
    inside = ones(wide.shape[2:])
    inside[top : top + x.shape[2], left : left + x.shape[3]] = 1
    view = np.lib.stride_tricks.sliding_window_view
    sums = view(wide, kernel, (2, 3))[:, :, ::stride, ::stride].sum((-1, -2))
    return sums / view(inside, kernel)[::stride, ::stride].sum((-1, -2))


@pytest.mark.parametrize("width", [3, 8, 9, 35])
@pytest.mark.parametrize(
    ("stride", "pads", "counts"), [(1, (1, 1, 1, 1), False), (1, (2, 0, 1, 2), True), (2, (0, 1, 1, 0), False)]
)
def test_average_pools(width: int, stride: int, pads: Any, counts: bool, kind_device: Any, bench: Any, rng: Any) -> None:
    """With an operand in whose memory the result may be: the last vector of a row begins among elements that are done."""
    x, other = rng.standard_normal((2, 2, 3, 7, width)).astype(np.float32)
    g = GraphBuilder()
    op = AveragePool(kernel_shape=(3, 2), strides=(stride,) * 2, pads=pads, count_include_pad=counts)
    operand = g.node(op, g.input("other", "float32", x.shape))
    y = g.node(op, g.input("x", "float32", x.shape), post_ops=[Binary("sub", operand)])
    device = kind_device("CPU")
    device.forced = "average_pool_rows"
    (got,) = bench.run(device, bench.typed(g.graph([y])), [other, x])
    device.forced = ""
    first, second = (averages(a, (3, 2), stride, pads, counts) for a in (x, other))
    np.testing.assert_allclose(got, first - second, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("exponent", "expected"), [(2, np.square), (0.5, np.sqrt), (3, lambda x: x**3), (-1, np.reciprocal)])
def test_powers_by_numbers(exponent: float, expected: Any, kind_device: Any, bench: Any, rng: Any) -> None:
    x = np.abs(rng.standard_normal((3, 37))).astype(np.float32) + 0.1
    graph, feeds = bench.single(Pow(), [x, np.float32(exponent)], (1,))
    (got,) = bench.run(kind_device("CPU"), graph, feeds)
    np.testing.assert_allclose(got, expected(x.astype(np.float64)), rtol=1e-6)


MODES = [("constant", (0, 0, 1, -1, 0, 0, 2, 3)), ("edge", (0, 1, 0, 2, 0, 0, 3, 9)), ("reflect", (0, 0, 2, 1, 0, 0, 1, 3))]
MODES += [("reflect", (0, 0, 0, 9, 0, 0, 0, 17)), ("wrap", (1, 0, 0, 2, 0, 0, 0, 3)), ("wrap", (0, 0, 0, 11, 0, 2, 0, 1))]
MODES += [("constant", (0, 2, 0, 0, 1, 0, 0, 0)), ("reflect", (0, 0, 3, 0, 0, 0, 1, 0)), ("constant", (0,) * 8)]


@pytest.mark.parametrize(("mode", "pads"), MODES)
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_pads(mode: str, pads: Any, kind: str, kind_device: Any, bench: Any, rng: Any) -> None:
    """Pads that are longer than the source, too, and axes without any, which count as one."""
    x = rng.integers(-99, 99, (2, 3, 4, 5)).astype(np.int16)
    begins, ends = np.array(pads).reshape(2, 4)
    cut = x[tuple(slice(max(0, -b), d - max(0, -e)) for b, e, d in zip(begins, ends, x.shape, strict=True))]
    more = {"constant_values": 7} if mode == "constant" else {}
    wide = [(max(0, b), max(0, e)) for b, e in zip(begins, ends, strict=True)]
    expected = np.pad(cut, wide, mode=mode, **more)  # type: ignore[call-overload]
    graph, feeds = bench.single(Pad(mode=mode), [x, np.array(pads), *([np.int16(7)] if more else [])], (1, 2))
    (got,) = bench.run(kind_device(kind), graph, feeds)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("maps", "strides", "dilations"), [(1, (1, 1, 1), (1, 1, 1)), (9, (2, 1, 3), (1, 2, 1)), (20, (1, 2, 2), (2, 1, 1))]
)
def test_convolutions_in_space(
    groups: int, maps: int, strides: Any, dilations: Any, kind_device: Any, bench: Any, rng: Any
) -> None:
    x, kernel = rng.standard_normal((2, 3 * groups, 5, 6, 7)).astype(np.float32), (2, 3, 2)
    w = rng.standard_normal((maps * groups, 3, *kernel)).astype(np.float32)
    pads, (n, _, *sizes) = (1, 0, 2, 1, 2, 0), x.shape
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *zip(pads[:3], pads[3:], strict=True)))
    dims = [
        (s + b + e - (k - 1) * d - 1) // t + 1
        for s, b, e, k, d, t in zip(sizes, pads[:3], pads[3:], kernel, dilations, strides, strict=True)
    ]
    expected = np.zeros((n, maps * groups, *dims))
    for at in itertools.product(*map(range, kernel)):
        taps = tuple(slice(i * d, i * d + (o - 1) * t + 1, t) for i, d, o, t in zip(at, dilations, dims, strides, strict=True))
        for group in range(groups):
            own = wide[(slice(None), slice(3 * group, 3 * group + 3), *taps)]
            part = slice(maps * group, maps * group + maps)
            expected[:, part] += np.einsum("ncdhw,mc->nmdhw", own, w[(part, slice(None), *at)])
    op = Conv(group=groups, strides=strides, dilations=dilations, pads=pads)
    graph, feeds = bench.single(op, [x, w], (1,), post_ops=[Eltwise("relu")])
    device = kind_device("CPU")
    device.forced = "conv_rows"
    (got,) = bench.run(device, graph, feeds)
    device.forced = ""
    np.testing.assert_allclose(got, np.maximum(expected, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows_last", [False, True])
def test_linear_resampling(rows_last: bool, kind_device: Any, bench: Any, rng: Any) -> None:
    """Also where an axis after the resampled ones has several elements."""
    x = rng.standard_normal((2, 3, 5, 4)).astype(np.float32)
    result = (2, 7, 9, 4) if rows_last else (2, 3, 7, 9)
    op = Resize(mode="linear", coordinate_transformation_mode="align_corners")
    graph, feeds = bench.single(op, [x, None, None, np.array(result)], (1, 2, 3))
    (got,) = bench.run(kind_device("CPU"), graph, feeds)
    expected = x.astype(np.float64)
    for axis in np.flatnonzero(np.array(result) != x.shape):
        places = np.linspace(0, x.shape[axis] - 1, result[axis])
        expected = np.apply_along_axis(lambda line, p=places: np.interp(p, np.arange(len(line)), line), axis, expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 8, 8191])
def test_means_far_from_zero(size: int, kind_device: Any, bench: Any, rng: Any) -> None:
    x = (rng.standard_normal((2, 3, size)) * 3 + 50).astype(np.float32)
    scale, bias = (rng.standard_normal(3).astype(np.float32) for _ in "sb")
    graph, feeds = bench.single(InstanceNormalization(), [x, scale, bias])
    (got,) = bench.run(kind_device("CPU"), graph, feeds)
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, normal * scale[:, None] + bias[:, None], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 15, 16, 23, 1030])
@pytest.mark.parametrize("name", ["ReduceMean", "ReduceMax", "ReduceLogSumExp"])
def test_reductions_of_lines(name: str, count: int, kind_device: Any, bench: Any, rng: Any) -> None:
    """One NaN among them is the result; lines of infinities keep their sign."""
    x = rng.standard_normal((5, count)).astype(np.float32)
    x[1, count // 2], x[2], x[3, count - 1] = np.nan, -np.inf, np.inf
    graph, feeds = bench.single(bench.op(name, keepdims=0), [x, np.array([1])], (1,))
    (got,) = bench.run(kind_device("CPU"), graph, feeds)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        top = wide.max(1)
        shift = np.where(np.isfinite(top), top, 0)
        sums = {
            "ReduceMean": wide.mean(1),
            "ReduceMax": top,
            "ReduceLogSumExp": np.log(np.exp(wide - shift[:, None]).sum(1)) + shift,
        }
    np.testing.assert_allclose(got, sums[name], rtol=1e-5, atol=1e-6)
