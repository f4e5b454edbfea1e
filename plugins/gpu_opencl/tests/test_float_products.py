"""Exact products and convolutions of floats on matrix units, with cp.async, ldmatrix and mma.sync emulated, against float64."""

import copy
import dataclasses
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DeviceInfo, DType, Eltwise, Sum, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, Pipelined, pipelines

exhaustive = pytest.mark.exhaustive(0.06)  # each compiles programs whose emulated instructions take drivers long

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

TILINGS = [Pipeline(32, 32, 32, 16, 16, 3), Pipeline(32, 16, 32, 32, 16, 2, 2), Pipeline(16, 32, 64, 16, 16, 4, 3)]
MODULES = ("_pipelined", "attention", "layer_normalization")
"""Those of kernels/ that assemble sources with inline PTX."""
PATIENCE = "dovetail_gpu_opencl.kernels._pipelined.PATIENCE"
ROUNDING = 2.0**-20
"""Of the sum of the magnitudes of what a product adds; sums of multiply-adds of floats had half of it on an H200."""
TINY = 2.0**-126
"""Where denormals begin: the error of a factor that is allowed, as if these were zeros."""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with emulated matrix units and copies, that takes products in the first tiling."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, float_pipeline=True, ptx=True, compute_units=1)
    for name in MODULES:
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", assembled)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels.attention._KEYS", 16)  # drivers for CPUs take long to build more
    monkeypatch.setattr(PATIENCE, np.inf)
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: TILINGS[0])
    return device


def exact(a: Any, b: Any) -> tuple[Any, Any]:
    """The product in float64, and that of the magnitudes."""
    wide = a.astype(np.float64), b.astype(np.float64)
    return wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])


def multiplied(device: Any, bench: Any, a: Any, b: Any) -> Any:
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    device.forced = "gemm_pipelined"
    return bench.run(device, graph, feeds)[0]


@exhaustive
@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@pytest.mark.parametrize(("batch", "m", "n", "k"), [((), 33, 40, 76), ((), 70, 37, 132), ((2,), 17, 24, 36)])
def test_products(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    tiling: Pipeline,
    device: Any,
    bench: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sizes around the tiles, columns that are stored eight or one at a time, and a chain."""
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: tiling)
    a, b = rng.standard_normal((*batch, m, k)).astype(np.float32), rng.standard_normal((*batch, k, n)).astype(np.float32)
    c, s = rng.standard_normal((*batch, m, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    chain = [Binary("mul", "s"), Sum("c"), Eltwise("relu")]
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
    device.forced = "gemm_pipelined"
    got = bench.run(device, graph, feeds)[0]
    expected, scale = exact(a, b)
    allowed = ROUNDING * (scale * np.abs(s) + np.abs(c))
    assert (np.abs(got - np.maximum(expected * s + c, 0)) <= allowed).all()


def spread(rng: Any, shape: tuple[int, ...], low: float, high: float) -> Any:
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(low, high, shape)).astype(np.float32)


def test_numbers_of_all_magnitudes(device: Any, bench: Any, rng: Any) -> None:
    """Each row of the product meets the bound of its own magnitudes, from 1e-30 by 1e30 to 1e-30 by 1."""
    a, b = spread(rng, (33, 72), -30, 30), spread(rng, (72, 24), -30, 0)
    a[::2] = spread(rng, (17, 72), -18, -16)
    b[:, ::2] = spread(rng, (72, 12), 16, 18)
    expected, scale = exact(a, b)
    within = scale < 1e38
    got = multiplied(device, bench, a, b)
    assert within.mean() > 0.5
    lost = TINY * (np.abs(a).astype(np.float64).sum(1, keepdims=True) + np.abs(b).astype(np.float64).sum(0))
    assert (np.abs(got - expected) <= ROUNDING * scale + lost)[within].all()


def test_denormals(device: Any, bench: Any, rng: Any) -> None:
    """A factor that is denormal or little more may lose bits, as where denormals are zeros; other rows and columns lose none."""
    a, b = rng.standard_normal((20, 40)).astype(np.float32), rng.standard_normal((40, 24)).astype(np.float32)
    a[3] *= np.float32(1e-36)
    a[7] *= np.float32(1e-40)
    b[:, 5] *= np.float32(1e-39)
    b[:, 6] *= np.float32(1e30)
    expected, scale = exact(a, b)
    lost = np.zeros_like(scale)
    lost[[3, 7]] += TINY * np.abs(b).astype(np.float64).sum(0)
    lost[:, 5] += TINY * np.abs(a).astype(np.float64).sum(1)
    assert (np.abs(multiplied(device, bench, a, b) - expected) <= ROUNDING * scale + lost).all()


@pytest.mark.parametrize("n", [24, 21])
def test_infinities_nan_and_the_largest_numbers(n: int, device: Any, bench: Any, rng: Any) -> None:
    """As multiply-adds of floats: infinity by a number is infinity, by zero NaN; 3.4e38 is not infinite in halves of it."""
    a, b = rng.standard_normal((20, 40)).astype(np.float32), rng.standard_normal((40, n)).astype(np.float32)
    a[3, 5], a[7, 9], a[11, 2] = np.inf, np.nan, -np.inf
    a[13, 1] = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
    a[17, 4] = np.finfo(np.float32).max
    b[4] = np.where(np.arange(n) % 2, 1, 0.5)
    b[5, 6], b[9, 3], b[1] = 0, 0, 0
    b[2, 8] = np.inf
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64)[:, :, None] * b.astype(np.float64)).sum(1)
        narrow = expected.astype(np.float32)
        scale = (np.abs(a.astype(np.float64))[:, :, None] * np.abs(b.astype(np.float64))).sum(1)
    got = multiplied(device, bench, a, b)
    finite = np.isfinite(narrow)
    assert np.isnan(got[3, 6])
    assert np.isinf(got[3, 7])
    assert np.isfinite(got[17]).sum() > n // 2
    np.testing.assert_array_equal(got[~finite], narrow[~finite])
    assert (np.abs(got[finite] - expected[finite]) <= ROUNDING * scale[finite]).all()


@exhaustive
def test_long_sums_of_one_sign(device: Any, bench: Any, rng: Any) -> None:
    """Matrix units add by truncation, which a sum of many would show."""
    a, b = rng.random((16, 4096), np.float32), rng.random((4096, 16), np.float32)
    expected, scale = exact(a, b)
    assert (np.abs(multiplied(device, bench, a, b) - expected) <= 2.0**-18 * scale).all()


CONVOLUTIONS = [  # batch, channels, maps, side, kernel, stride, pads
    (2, 16, 24, 6, 1, 1, 0),  # a plain product
    (1, 8, 40, 7, 3, 1, 1),
    (2, 12, 13, 9, 3, 2, 1),  # maps that are stored one at a time
    (1, 4, 16, 11, 5, 2, 2),
]


@exhaustive
@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_convolutions(sizes: tuple[int, ...], device: Any, bench: Any, rng: Any) -> None:
    """By way of the runtime's passes, which reorder the source; one element is infinite, its windows alone are."""
    batch, channels, maps, side, kernel, stride, pad = sizes
    x = rng.standard_normal((batch, channels, side, side)).astype(np.float32)
    w = rng.standard_normal((maps, channels, kernel, kernel)).astype(np.float32)
    b, scale = rng.standard_normal(maps).astype(np.float32), rng.standard_normal((maps, 1, 1)).astype(np.float32)
    expected = bench.convolve(x, w, stride, (pad,) * 4, 1) + b[:, None, None]
    magnitudes = bench.convolve(np.abs(x), np.abs(w), stride, (pad,) * 4, 1) + np.abs(b)[:, None, None]
    op = bench.op("Conv", strides=(stride,) * 2, pads=(pad,) * 4)
    chain = [Binary("mul", "scale"), Sum("c")]
    c = rng.standard_normal(expected.shape).astype(np.float32)
    graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=chain, operands={"scale": scale, "c": c})
    got = bench.run_lowered(device, graph, feeds, {"conv_pipelined"})
    allowed = ROUNDING * (magnitudes * np.abs(scale) + np.abs(c))
    assert (np.abs(got - (expected * scale + c)) <= allowed).all()
    feeds[0][0, 1, 2, 3] = np.inf
    touched = bench.convolve(np.isinf(feeds[0]), np.ones_like(w), stride, (pad,) * 4, 1) > 0
    again = bench.run_lowered(device, graph, feeds, {"conv_pipelined"})
    np.testing.assert_array_equal(np.isfinite(again), ~touched)
    np.testing.assert_array_equal(again[~touched], got[~touched])


@exhaustive
def test_volumes(device: Any, bench: Any, rng: Any) -> None:
    """Images with a depth; what an infinite element touches is added up again, and the rest stays."""
    x, w = rng.standard_normal((2, 4, 4, 6, 5)).astype(np.float32), rng.standard_normal((9, 4, 2, 3, 3)).astype(np.float32)
    op = bench.op("Conv", strides=(1, 2, 1), pads=(1, 1, 0, 0, 1, 2), dilations=(2, 1, 1))
    graph, feeds = bench.single(op, [x, w], (1,))
    got, expected = (
        bench.run_lowered(device, graph, feeds, {"conv_pipelined"}),
        op.reference(x.astype(np.float64), w.astype(np.float64)),
    )
    close(got, expected)
    feeds[0][1, 2, 1, 3, 2] = np.inf
    touched = op.reference(np.isinf(feeds[0]).astype(np.float64), np.ones_like(w)) > 0
    again = bench.run_lowered(device, graph, feeds, {"conv_pipelined"})
    np.testing.assert_array_equal(np.isfinite(again), ~touched)
    np.testing.assert_array_equal(again[~touched], got[~touched])


def close(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_a_depthwise_convolution_of_a_plain_image(device: Any, bench: Any, rng: Any) -> None:
    """The kernel for channels innermost takes plain images, too, where a reorder would take longer."""
    x, w = rng.standard_normal((2, 8, 5, 9)).astype(np.float32), rng.standard_normal((8, 1, 3, 3)).astype(np.float32)
    graph, feeds = bench.single(bench.op("Conv", group=8, pads=(1, 1, 1, 1)), [x, w], (1,))
    device.forced = "conv_depthwise_channels"
    expected = bench.convolve(x, w, 1, (1,) * 4, 8)
    np.testing.assert_allclose(bench.run(device, graph, feeds)[0], expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@exhaustive
def test_an_image_stays_with_channels_innermost(device: Any, bench: Any, rng: Any) -> None:
    """Depthwise, max pool and the mean between products, without a reorder."""
    x = rng.standard_normal((2, 8, 9, 9)).astype(np.float32)
    w1 = rng.standard_normal((16, 8, 3, 3)).astype(np.float32)  # too many products for a launch with the depthwise one
    w2, b2 = rng.standard_normal((16, 1, 3, 3)).astype(np.float32), rng.standard_normal(16).astype(np.float32)
    g = GraphBuilder()
    first = g.node(bench.op("Conv", pads=(1,) * 4), g.input("x", "float32", x.shape), g.constant(w1))
    second = g.node(bench.op("Conv", group=16, strides=(2, 2), pads=(1, 1, 1, 1)), first, g.constant(w2), g.constant(b2))
    pooled = g.node(bench.op("MaxPool", kernel_shape=(2, 2)), second)
    graph = fold_constants(g.graph([g.node(bench.op("GlobalAveragePool"), pooled)]))
    got = bench.run_lowered(
        device, graph, [x], {"conv_pipelined", "conv_depthwise_channels", "max_pool_innermost", "mean_channels"}
    )
    wide = bench.convolve(bench.convolve(x, w1, 1, (1,) * 4, 1), w2, 2, (1,) * 4, 16) + b2[:, None, None]
    windows = np.lib.stride_tricks.sliding_window_view(wide, (2, 2), (2, 3))
    close(got, windows.max((4, 5)).mean((2, 3), keepdims=True))


@exhaustive
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("tiling", [Pipeline(16, 16, 32, 16, 16, 2), Pipeline(16, 32, 32, 16, 16, 2, 2)], ids=str)
def test_the_rows_of_a_product_are_normalized_in_its_launch(
    tiling: Pipeline, is_read: bool, device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, because counters begin at zero again; the product may be a result, too."""
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: tiling)
    x, w = rng.standard_normal((17, 72)).astype(np.float32), rng.standard_normal((72, 40)).astype(np.float32)
    residual, (scale, bias) = rng.standard_normal((17, 40)).astype(np.float32), rng.standard_normal((2, 40)).astype(np.float32)
    g = GraphBuilder()
    added = Binary("add", g.input("residual", "float32", residual.shape))
    product = g.node(bench.op("MatMul"), g.input("x", "float32", x.shape), g.constant(w), post_ops=[added])
    op = bench.op("LayerNormalization", epsilon=1e-3)
    outputs = [g.node(op, product, g.constant(scale), g.constant(bias)), *([product] if is_read else [])]
    lowered = assign_layouts(device.lower(fold_constants(g.graph(outputs))), device.configurations)
    executable = device.compile(lowered, {})
    assert [report.kernel for report in executable.reports] == ["gemm_normalized"]
    request = executable.create_request()
    for factor in (1, -2):
        wide = (factor * x).astype(np.float64) @ w + residual
        expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * scale + bias
        given = {"x": factor * x, "residual": residual}
        for found, wanted in zip(request.run([given[name] for name in lowered.inputs]), (expected, wide), strict=False):
            close(found, wanted)


@exhaustive
@pytest.mark.parametrize(
    ("masked", "units", "kernel"),
    [(False, 1, "packed_attention_floats"), (True, 1, "packed_attention_floats"), (True, 132, "packed_attention_blocks")],
)
def test_one_product_makes_queries_keys_and_values(
    masked: bool, units: int, kernel: str, device: Any, bench: Any, rng: Any
) -> None:
    device.caps = dataclasses.replace(device.caps, compute_units=units)
    device._bound = {}
    x = rng.standard_normal((2, 9, 32)).astype(np.float32)
    weights = [(rng.standard_normal((32, 32)) / 5).astype(np.float32) for _ in range(3)]
    rows = [rng.standard_normal(32).astype(np.float32) for _ in range(3)]
    mask = np.where(rng.random((2, 1, 1, 9)) < 0.3, -1e9, 0).astype(np.float32)
    g = GraphBuilder()
    given = g.input("x", "float32", x.shape)
    parts = [
        g.node(bench.op("MatMul"), given, g.constant(w), post_ops=[Binary("add", g.constant(r))])
        for w, r in zip(weights, rows, strict=True)
    ]
    masks = [g.input("mask", "float32", mask.shape)] if masked else []
    graph = fold_constants(g.graph([g.node(bench.op("Attention", q_num_heads=2, kv_num_heads=2), *parts, *masks)]))
    feeds = [x, mask] if masked else [x]
    got = bench.run_lowered(device, graph, feeds, {"gemm_pipelined", kernel})
    q, k, v = ((x.astype(np.float64) @ w + r).reshape(2, 9, 2, 16).swapaxes(1, 2) for w, r in zip(weights, rows, strict=True))
    scores = np.exp(q @ k.swapaxes(-1, -2) / 4 + (mask if masked else 0))
    close(got, (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(2, 9, 32))


@exhaustive
@pytest.mark.parametrize("dims", [(2, 9), (2, 3, 9)])
@pytest.mark.parametrize("made", ["Split", "Slice"])
def test_queries_keys_and_values_that_are_columns_of_one_product(
    dims: tuple[int, ...], made: str, device: Any, bench: Any, rng: Any
) -> None:
    """As GPT-2 splits them, and as windows of MaxViT have them, which are more batches."""
    x = rng.standard_normal((*dims, 32)).astype(np.float32)
    weight = (rng.standard_normal((32, 96)) / 5).astype(np.float32)
    batch = int(np.prod(dims[:-1]))
    g = GraphBuilder()
    whole = g.node(bench.op("MatMul"), g.input("x", "float32", x.shape), g.constant(weight))
    if made == "Split":
        parts = g.node(bench.op("Split", axis=-1, num_outputs=3), whole, outputs=3)
    else:
        parts = [g.node(bench.op("Slice"), whole, *(g.constant([n], "int64") for n in (i, i + 32, -1))) for i in (0, 32, 64)]
    parts = [g.node(bench.op("Reshape"), part, g.constant((batch, 9, 32), "int64")) for part in parts]
    graph = fold_constants(g.graph([g.node(bench.op("Attention", q_num_heads=2, kv_num_heads=2), *parts)]))
    kinds = [node.op.op_type for node in device.lower(graph).nodes]
    assert "PackedAttention" in kinds
    assert not {"Split", "Slice"} & {*kinds}
    got = bench.run_lowered(device, graph, [x], {"gemm_pipelined"})
    q, k, v = np.split((x.astype(np.float64) @ weight).reshape(batch, 9, 3, 2, 16).swapaxes(1, 3), 3, 2)
    scores = np.exp(q[:, :, 0] @ k[:, :, 0].swapaxes(-1, -2) / 4)
    close(got, (scores / scores.sum(-1, keepdims=True) @ v[:, :, 0]).swapaxes(1, 2).reshape(batch, 9, 32))


@pytest.mark.parametrize("order", [(0, 2, 1), (0, 1, 1), (2, 1, 0)])
def test_columns_in_another_order_stay_apart(order: tuple[int, ...], device: Any, bench: Any) -> None:
    g = GraphBuilder()
    parts = g.node(bench.op("Split", axis=-1, num_outputs=3), g.input("x", "float32", (2, 9, 96)), outputs=3)
    graph = fold_constants(g.graph([g.node(bench.op("Attention", q_num_heads=2, kv_num_heads=2), *(parts[i] for i in order))]))
    assert "PackedAttention" not in {node.op.op_type for node in device.lower(graph).nodes}


@exhaustive
@pytest.mark.parametrize("scaled", [0, 1, 2], ids=["queries", "keys", "values"])
def test_scaled_queries_and_keys_without_a_row_are_of_one_product(scaled: int, device: Any, bench: Any, rng: Any) -> None:
    """As Whisper and BEiT have them; what scales the values is not a part of the scores."""
    x = rng.standard_normal((2, 9, 32)).astype(np.float32)
    weights = [(rng.standard_normal((32, 32)) / 5).astype(np.float32) for _ in range(3)]
    rows = [rng.standard_normal(32).astype(np.float32) * (i != 1) for i in range(3)]
    factors = [np.float32(0.3) if i == scaled else np.float32(1) for i in range(3)]
    g = GraphBuilder()
    given, parts = g.input("x", "float32", x.shape), []
    for i, (w, r) in enumerate(zip(weights, rows, strict=True)):
        chain = [Binary("add", g.constant(r))] if i != 1 else []
        chain += [Binary("mul", g.constant(factors[i]))] if i == scaled else []
        parts.append(g.node(bench.op("MatMul"), given, g.constant(w), post_ops=chain))
    graph = fold_constants(g.graph([g.node(bench.op("Attention", q_num_heads=2, kv_num_heads=2), *parts)]))
    assert ("PackedAttention" in {node.op.op_type for node in device.lower(graph).nodes}) == (scaled < 2)
    got = bench.run_lowered(device, graph, [x], {"gemm_pipelined"})
    q, k, v = (
        ((x.astype(np.float64) @ w + r) * f).reshape(2, 9, 2, 16).swapaxes(1, 2)
        for w, r, f in zip(weights, rows, factors, strict=True)
    )
    scores = np.exp(q @ k.swapaxes(-1, -2) / 4)
    close(got, (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(2, 9, 32))


ATTENTION = [  # batch, query heads, key heads, queries, keys, size, size of values, and what else
    (2, 2, 2, 40, 70, 32, 16, "mask"),
    (1, 4, 2, 33, 33, 16, 32, "causal"),
    (1, 1, 1, 5, 100, 16, 16, "leaves out"),
    (1, 2, 2, 18, 40, 16, 16, "infinities"),
]


@exhaustive
@pytest.mark.parametrize("sizes", ATTENTION)
def test_attention(sizes: tuple[Any, ...], device: Any, bench: Any, rng: Any) -> None:
    """A row that sees no key is zeros. Infinite values and keys count where they are seen, and as elsewhere."""
    batch, heads, kv_heads, queries, keys, size, v_size, kind = sizes
    q = rng.standard_normal((batch, heads, queries, size)).astype(np.float32)
    k = rng.standard_normal((batch, kv_heads, keys, size)).astype(np.float32)
    v = rng.standard_normal((batch, kv_heads, keys, v_size)).astype(np.float32)
    if kind == "infinities":
        v[0, 0, 7, 3], k[0, 1, 5, 2] = np.inf, -np.inf
        q[0, 1, :, 2] = np.where(np.arange(queries) % 2, 1, -1)  # rows whose score is an infinity of either sign
    wide = [np.repeat(a, heads // a.shape[1], 1).astype(np.float64) for a in (q, k, v)]
    given = [q, k, v]
    with np.errstate(invalid="ignore"):
        scores = wide[0] @ wide[1].swapaxes(-1, -2) / size**0.5
        if kind == "mask":
            given.append(rng.standard_normal((batch, 1, 1, keys)).astype(np.float32))
            scores = scores + given[-1]
        elif kind == "leaves out":
            given.append(rng.random((queries, keys)) < 0.5)
            given[-1][2] = False
            scores = np.where(given[-1], scores, -np.inf)
        elif kind == "causal":
            scores = np.where(np.tril(np.ones((queries, keys), bool)), scores, -np.inf)
        weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
        weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-30)
        expected = weights @ wide[2]
    graph, feeds = bench.single(bench.op("Attention", is_causal=int(kind == "causal")), given)
    device.forced = "attention_floats"
    got = bench.run(device, graph, feeds)[0]
    finite = np.isfinite(expected)
    assert finite.mean() > 0.5
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    np.testing.assert_allclose(got[finite], expected[finite], rtol=0, atol=2e-6 * np.abs(expected[finite]).max())


@exhaustive
def test_embeddings_are_normalized_in_one_launch(device: Any, bench: Any, rng: Any) -> None:
    words, kinds, scale = (rng.standard_normal(shape).astype(np.float32) for shape in ((30, 40), (3, 40), (40,)))
    g = GraphBuilder()
    found = g.node(bench.op("Gather"), g.constant(words), g.input("ids", "int64", (2, 9)))
    other = g.node(bench.op("Gather"), g.constant(kinds), g.input("kinds", "int32", (2, 9)))
    total = g.node(bench.op("Add"), found, other)
    graph = fold_constants(g.graph([g.node(bench.op("LayerNormalization"), total, g.constant(scale))]))
    lowered = assign_layouts(device.lower(graph), device.configurations)
    assert [node.op.op_type for node in lowered.nodes] == ["NormalizedSum"]
    feeds = {"ids": rng.integers(-30, 30, (2, 9)), "kinds": rng.integers(0, 3, (2, 9)).astype(np.int32)}
    wide = words.astype(np.float64)[feeds["ids"]] + kinds[feeds["kinds"]]
    wide = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    close(device.compile(lowered, {}).create_request().run([feeds[name] for name in lowered.inputs])[0], wide * scale)


def test_on_matrix_units(bench: Any, rng: Any, infos: Sequence[DeviceInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU whose asynchronous copies work, some tilings and all special cases; elsewhere no device claims to have them."""
    device: Any = OpenCLDevice(infos[0])
    assert device.caps.float_pipeline == (device.caps.ptx and device.caps.compute_capability >= (8, 0))
    if not device.caps.float_pipeline:
        return
    monkeypatch.setattr(PATIENCE, np.inf)
    a, b = rng.standard_normal((77, 200)).astype(np.float32), rng.standard_normal((200, 72)).astype(np.float32)
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    (kernel,) = (k for k in device.kernels(node) if k.name == "gemm_pipelined")
    expected, scale = exact(a, b)
    for tiling in list(pipelines(kernel.problem(node), device.caps))[::3]:
        monkeypatch.setattr(Pipelined, "tiling", lambda self, problem, chosen=tiling: chosen)
        assert (np.abs(bench.run(device, graph, feeds)[0] - expected) <= ROUNDING * scale).all()
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: Pipeline(64, 64, 64, 32, 32, 3))
    test_numbers_of_all_magnitudes(device, bench, rng)
    test_denormals(device, bench, rng)
    test_infinities_nan_and_the_largest_numbers(24, device, bench, rng)
    test_infinities_nan_and_the_largest_numbers(21, device, bench, rng)
    test_long_sums_of_one_sign(device, bench, rng)
    for sizes in CONVOLUTIONS:
        test_convolutions(sizes, device, bench, rng)
    test_an_image_stays_with_channels_innermost(device, bench, rng)
    device.caps = dataclasses.replace(device.caps, compute_units=1)
    device._bound = {}
    for heads in ATTENTION:
        test_attention(heads, device, bench, rng)
    test_one_product_makes_queries_keys_and_values(True, 1, "packed_attention_floats", device, bench, rng)
    test_embeddings_are_normalized_in_one_launch(device, bench, rng)
    assert kernel.factor(node) is DType.FLOAT32
