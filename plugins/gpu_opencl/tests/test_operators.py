"""Kernels along lines and through time, at sizes round their work groups, on both kinds of device; float16; indices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import DType, TypedNode
from dovetail.errors import InferError
from dovetail_gpu_opencl.device import OpenCLDevice

SAMPLED = pytest.mark.exhaustive(0.25)  # each compiles programs

KINDS = pytest.mark.parametrize("kind", ["CPU", "GPU"])
SIZES = pytest.mark.parametrize("dims", [(1, 1), (0, 3), (17, 3), (3, 130)], ids=str)
Floats = NDArray[np.float32]


def floats(rng: np.random.Generator, *dims: int) -> Floats:
    return rng.standard_normal(dims).astype(np.float32)


def run(bench: Any, device: Any, op: Any, *inputs: Any, constants: tuple[int, ...] = (), outputs: int = 1) -> list[NDArray[Any]]:
    graph, feeds = bench.single(op, list(inputs), constants, outputs)
    results: list[NDArray[Any]] = bench.run(device, graph, feeds)
    return results


@SAMPLED
@KINDS
@SIZES
def test_extremes(dims: tuple[int, ...], kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Along the last axis, with ties: ArgMax, ArgMin, TopK."""
    device = kind_device(kind)
    x = rng.integers(0, 40, dims).astype(np.float32)
    last = dims[-1] - 1
    found = run(bench, device, bench.op("ArgMax", axis=-1, keepdims=False), x)[0]
    np.testing.assert_array_equal(found, x.argmax(-1))
    found = run(bench, device, bench.op("ArgMin", axis=-1, keepdims=False, select_last_index=True), x)[0]
    np.testing.assert_array_equal(found, last - x[:, ::-1].argmin(-1))
    k = np.array([min(dims[-1], 5)], np.int64)
    values, places = run(bench, device, bench.op("TopK"), x, k, constants=(1,), outputs=2)
    order = np.argsort(-x, axis=-1, kind="stable")[:, : int(k[0])]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))


@KINDS
def test_nan_is_extreme(kind: str, kind_device: Callable[[str], Any], bench: Any) -> None:
    x = np.zeros((1, 100), np.float32)
    x[0, [70, 90]] = np.nan
    x[0, 30] = 5
    assert run(bench, kind_device(kind), bench.op("ArgMax", axis=1), x)[0][0, 0] == 70
    assert run(bench, kind_device(kind), bench.op("ArgMin", axis=1), x)[0][0, 0] == 70
    places = run(bench, kind_device(kind), bench.op("TopK"), x, np.array([3]), constants=(1,), outputs=2)[1]
    np.testing.assert_array_equal(places, [[70, 90, 30]])


@SAMPLED
@KINDS
@SIZES
def test_normalizations(dims: tuple[int, ...], kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    device = kind_device(kind)
    x, scale = floats(rng, *dims) + np.float32(3), floats(rng, dims[-1])
    wide = x.astype(np.float64)
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    y, means, factors = run(bench, device, bench.op("LayerNormalization"), x, scale, scale, outputs=3)
    np.testing.assert_allclose(y, (wide - mean) / np.sqrt(variance + 1e-5) * scale + scale, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(means, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(factors, 1 / np.sqrt(variance + 1e-5), rtol=1e-4)
    y = run(bench, device, bench.op("RMSNormalization"), x, scale)[0]
    np.testing.assert_allclose(y, wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale, rtol=1e-5, atol=1e-6)
    y = run(bench, device, bench.op("LpNormalization", p=1, axis=-1), x)[0]
    np.testing.assert_allclose(y, wide / np.abs(wide).sum(-1, keepdims=True), rtol=1e-5)


@SAMPLED
@KINDS
@pytest.mark.parametrize(("time", "batch", "width", "hidden"), [(1, 1, 1, 1), (5, 3, 17, 9), (3, 2, 8, 33), (2, 0, 3, 4)])
def test_gated_units(
    time: int, batch: int, width: int, hidden: int, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """A bidirectional GRU whose sequences end early, step by step in float64."""
    x, lens = floats(rng, time, batch, width), rng.integers(0, time + 1, batch).astype(np.int32)
    w, r = floats(rng, 2, 3 * hidden, width), floats(rng, 2, 3 * hidden, hidden)
    b, h0 = floats(rng, 2, 6 * hidden), floats(rng, 2, batch, hidden)
    op = bench.op("GRU", hidden_size=hidden, direction="bidirectional")
    y, last = run(bench, kind_device(kind), op, x, w, r, b, lens, h0, constants=(1, 2, 3), outputs=2)
    for d in (0, 1):
        h = h0[d].astype(np.float64)
        for t in reversed(range(time)) if d else range(time):
            alive = (t < lens)[:, None]
            new = gru_step(x[t], h, *(part[d].astype(np.float64) for part in (w, r, b)))
            h = np.where(alive, new, h)
            np.testing.assert_allclose(y[t, d], np.where(alive, new, 0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(last[d], h, rtol=1e-4, atol=1e-5)


def gru_step(x: NDArray[Any], h: NDArray[Any], w: NDArray[Any], r: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    def logistic(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    wz, wr, wn = np.split(w, 3)
    rz, rr, rn = np.split(r, 3)
    wbz, wbr, wbn, rbz, rbr, rbn = np.split(b, 6)
    z = logistic(x @ wz.T + h @ rz.T + wbz + rbz)
    reset = logistic(x @ wr.T + h @ rr.T + wbr + rbr)
    fresh = np.tanh(x @ wn.T + (reset * h) @ rn.T + wbn + rbn)
    result: NDArray[Any] = (1 - z) * fresh + z * h
    return result


@pytest.mark.parametrize("scale", [0.25, 3e-5, 1e-39, 0.0])
def test_numbers_quantized_four_at_a_time(scale: float, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Quotients that are halves, beyond the range, infinite and not numbers."""
    x = np.concatenate(
        [rng.integers(-600, 600, 2037) * np.float32(scale / 2), [0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-39]]
    )
    x = x.astype(np.float32)
    given, zero = np.array(scale, np.float32), np.array(-7, np.int8)
    graph, feeds = bench.single(bench.op("QuantizeLinear"), [x, given, zero], (1, 2))
    with np.errstate(all="ignore"):
        whole = np.nan_to_num(np.rint(x / given) - 7, nan=0, posinf=127, neginf=-128)
    (got,) = bench.run(kind_device("GPU"), graph, feeds, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(got, np.clip(whole, -128, 127).astype(np.int8))


@KINDS
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("size", [1, 2044, 2045])
def test_numbers_dequantized_four_at_a_time(
    size: int, dtype: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    x, scale, zero = rng.integers(-128, 128, size).astype(np.int8).view(dtype), np.float32(0.0317), dtype(101)
    for given, origin in (([x, scale, zero], 101), ([x, scale], 0)):
        (got,) = run(bench, kind_device(kind), bench.op("DequantizeLinear"), *map(np.asarray, given))
        np.testing.assert_array_equal(got, (x.astype(np.int32) - origin).astype(np.float32) * scale)


@KINDS
def test_range_of_a_tensor(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    for size in (1, 3, 1000, 40_003):
        x = 3 * floats(rng, size) + np.float32(1)
        y, scale, zero = run(bench, kind_device(kind), bench.op("DynamicQuantizeLinear"), x, outputs=3)
        low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
        np.testing.assert_allclose(scale, (high - low) / 255, rtol=1e-6)
        assert int(zero) == round(-low / float(scale))
        whole = np.rint(x / scale) + np.float32(zero)
        np.testing.assert_array_equal(y, whole.clip(0, 255))


@KINDS
@pytest.mark.parametrize(("value", "places"), [(np.nan, [0]), (np.nan, [-1]), (np.nan, [9000]), (0.0, slice(None)), (0.0, [])])
def test_ranges_of_what_is_no_range(
    value: float, places: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """With NaN the scale is NaN and all is 0; without a range, or elements, it is 1 / 255."""
    x = floats(rng, 10_001) if places else floats(rng, 0)
    x[places] = value
    y, scale, zero = run(bench, kind_device(kind), bench.op("DynamicQuantizeLinear"), x, outputs=3)
    np.testing.assert_array_equal(scale, np.float32(value + 1) / np.float32(255))
    assert int(zero) == 0
    assert y.shape == x.shape
    assert not y.any()


@KINDS
def test_statistics_of_a_batch(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    x, given = floats(rng, 3, 5, 41), np.abs(floats(rng, 5)) + np.float32(1)
    op = bench.op("BatchNormalization", training_mode=True, momentum=0.75)
    y, mean, variance = run(bench, kind_device(kind), op, x, given, given, given, given, outputs=3)
    wide, own = x.astype(np.float64), given.reshape(1, 5, 1)
    m, v = wide.mean((0, 2), keepdims=True), wide.var((0, 2), keepdims=True)
    np.testing.assert_allclose(y, (wide - m) / np.sqrt(v + 1e-5) * own + own, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, 0.75 * given + 0.25 * m.reshape(-1), rtol=1e-5)
    np.testing.assert_allclose(variance, 0.75 * given + 0.25 * v.reshape(-1), rtol=1e-5)


def test_float16_everywhere(device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """Stored in 16 bits, computed in float32 and rounded once: within half a unit in the last place and float32's own errors."""
    a, b = (floats(rng, 17, 17).astype(np.float16) for _ in range(2))
    wide = a.astype(np.float64)
    plane = a.reshape(1, 1, 17, 17)
    column = np.ones((1, 1, 1, 1), np.float16)
    expected = {
        "Add": (wide + b, (a, b), {}),
        "Tanh": (np.tanh(wide), (a,), {}),
        "Softmax": (np.exp(wide) / np.exp(wide).sum(-1, keepdims=True), (a,), {}),
        "MatMul": (wide @ b.astype(np.float64), (a, b), {}),
        "ReduceMean": (wide.mean(keepdims=True), (a,), {}),
        "CumSum": (wide.cumsum(1), (a, np.array(1)), {}),
        "Conv": (plane.astype(np.float64), (plane, column), {}),
        "ConvTranspose": (plane.astype(np.float64), (plane, column), {}),
        "GlobalAveragePool": (wide.mean(keepdims=True)[None, None], (plane,), {}),
    }
    for name, (want, inputs, attributes) in expected.items():
        (got,) = run(bench, device, bench.op(name, **attributes), *inputs)
        assert got.dtype == np.float16, name
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2**-10.9, atol=1e-6, err_msg=name)


@SAMPLED
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_products_of_integers(dtype: str, device: OpenCLDevice, bench: Any, rng: Any) -> None:
    a, b = (rng.integers(0, 2**31 - 1, dims).astype(dtype) for dims in ((3, 17), (17, 5)))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(bench, device, bench.op("MatMul"), a, b)[0], a @ b)


@pytest.mark.parametrize(("dims", "axis"), [((5,), 0), ((17, 3), 1), ((3, 21), 0), ((2, 9, 13), 1), ((2, 5, 8), 1)])
def test_sums_of_lines_side_by_side(dims: tuple[int, ...], axis: int, device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """Neighbours, lines of two blocks, lines one behind the other, and fewer than a work item takes."""
    x = rng.integers(-9, 9, dims).astype(np.float32)
    for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
        found = np.flip(x, axis) if reverse else x
        found = found.cumsum(axis) - exclusive * found
        op = bench.op("CumSum", exclusive=exclusive, reverse=reverse)
        graph, feeds = bench.single(op, [x, np.array(axis)], (1,))
        np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], np.flip(found, axis) if reverse else found)


def test_the_last_update_of_a_place_counts(device: OpenCLDevice, bench: Any, rng: Any) -> None:
    data, updates = floats(rng, 7), floats(rng, 1000)
    index = rng.integers(-7, 7, 1000)
    expected = data.copy()
    expected[index] = updates
    np.testing.assert_array_equal(run(bench, device, bench.op("ScatterElements"), data, index, updates)[0], expected)
    np.testing.assert_array_equal(run(bench, device, bench.op("ScatterND"), data, index[:, None], updates)[0], expected)


def test_updates_are_added_in_their_order(device: OpenCLDevice, bench: Any, rng: Any) -> None:
    """Float addition rounds differently in every other order."""
    data, updates, index = floats(rng, 5), floats(rng, 300), rng.integers(0, 5, 300)
    expected = data.copy()
    for place, update in zip(index, updates, strict=True):
        expected[place] += update
    for name, given in (("ScatterElements", index), ("ScatterND", index[:, None])):
        np.testing.assert_array_equal(run(bench, device, bench.op(name, reduction="add"), data, given, updates)[0], expected)


@SAMPLED
@pytest.mark.parametrize("name", ["GatherElements", "GatherND", "ScatterElements", "ScatterND"])
@pytest.mark.parametrize("wrong", [5, -6, 2**40])
def test_indices_out_of_range(name: str, wrong: int, device: OpenCLDevice, bench: Any) -> None:
    index = np.array([0, wrong], np.int64)
    inputs = [np.zeros(5, np.float32), index[:, None] if name.endswith("ND") else index]
    inputs += [np.ones(2, np.float32)] if name.startswith("Scatter") else []
    with pytest.raises(InferError, match="index"):
        run(bench, device, bench.op(name), *inputs)


def test_casts_round_once(device: OpenCLDevice, bench: Any) -> None:
    """By way of float32, the first would be rounded to 1; out of range the nearest bound, NaN 0."""
    x = np.array([1 + 2**-11 + 2**-30, 65519.9, 65520, np.nan], np.float64)
    graph, feeds = bench.single(bench.op("Cast", to=DType.FLOAT16), [x])
    if not device.caps.fp64:
        assert not device.supports(TypedNode.of(graph.nodes[0], graph))
        return
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], np.array([1 + 2**-10, 65504, np.inf, np.nan], np.float16))
    for dtype, expected in ((DType.INT8, [-128, 127, 0, -1]), (DType.UINT64, [0, 2**64 - 1, 0, 0]), (DType.BOOL, [1, 1, 1, 1])):
        (got,) = run(bench, device, bench.op("Cast", to=dtype), np.array([-1e30, 1e30, np.nan, -1.9]))
        np.testing.assert_array_equal(got, np.array(expected, dtype.numpy))


@pytest.mark.parametrize("wrong", [3, -1, 2**40])
def test_boxes_and_writes_out_of_range(wrong: int, device: OpenCLDevice, bench: Any) -> None:
    """A box of an image that does not exist, a box without an end, an update behind the cache."""
    image, box = np.ones((3, 1, 4, 4), np.float32), np.array([[0, 0, 2, 2]], np.float32)
    for boxes, batch in ((box, wrong), (np.full_like(box, np.inf), 0)):
        with pytest.raises(InferError, match="batch is out of range; accepted: 0 to 2"):
            run(bench, device, bench.op("RoiAlign"), image, boxes, np.array([batch]))
    for mode, most in (("linear", 2), ("circular", 4)):
        start = max(wrong, most + 1) if wrong > 0 else wrong
        with pytest.raises(InferError, match=f"a write index is out of range: the cache '.*' takes 0 to {most}"):
            run(bench, device, bench.op("TensorScatter", mode=mode), image, image[:, :, :2], np.array([0, start, 0]))


def test_places_that_are_no_numbers(device: OpenCLDevice, bench: Any) -> None:
    """A grid with NaN, infinities and far places, and as many places as do not fill a work group."""
    x = np.arange(1, 31, dtype=np.float32).reshape(1, 2, 3, 5)
    places = np.random.default_rng(4).uniform(-3, 3, (1, 131, 1, 2)).astype(np.float32)
    places[0, :6, 0] = np.array([[np.nan, 0], [np.inf, 0], [-np.inf, 0.5], [1e30, -1e30], [1, 1], [-1, -1]])
    for mode, padding in (("linear", "zeros"), ("nearest", "border"), ("cubic", "border"), ("linear", "reflection")):
        op = bench.op("GridSample", mode=mode, padding_mode=padding)
        finite = places[:, 4:] if padding == "reflection" else places  # where a far place ends up hangs on its last bit
        expected = op.reference(x.astype(np.float64), finite.astype(np.float64))
        (got,) = run(bench, device, op, x, finite)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
