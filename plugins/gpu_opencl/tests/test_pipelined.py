"""Products and convolutions of halves in a pipeline, with cp.async, ldmatrix and mma.sync emulated, against float64."""

import copy
import dataclasses
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DeviceInfo, DType, Eltwise, Graph, Sum, TypedNode
from dovetail.errors import InferError
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, pipelines
from dovetail_gpu_opencl.kernels._tuned import Tuned

pytestmark = pytest.mark.exhaustive(0.07)  # each test compiles programs whose emulated instructions take drivers long

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

TILINGS = [Pipeline(32, 32, 32, 16, 16, 3), Pipeline(32, 16, 32, 32, 16, 2, 2), Pipeline(16, 32, 64, 16, 16, 4, 3)]
TOLERANCE = 2e-3
"""Of the largest result: factors are halves already, sums are float32, results are rounded to halves once (5e-4)."""
MODULES = ("_pipelined", "attention", "layer_normalization")
"""Those of kernels/ that assemble sources with inline PTX."""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with emulated matrix units and copies, that takes products in the first tiling."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, matrix="f16", pipeline=True, float_pipeline=False, ptx=True)
    for name in MODULES:
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", assembled)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels.attention._KEYS", 32)  # drivers for CPUs take long to build more
    monkeypatch.setattr("dovetail_gpu_opencl.precision.WORTH", 0)  # small images are worth it, too
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: TILINGS[0])
    return device


def compare(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@pytest.mark.parametrize(("batch", "m", "n", "k"), [((), 33, 40, 72), ((), 70, 37, 136), ((2,), 17, 24, 40)])
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
    """Sizes around the tiles, columns that are stored eight or one at a time, a chain with operands in both float types."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: tiling)
    a = rng.standard_normal((*batch, m, k)).astype(np.float16)
    b = rng.standard_normal((*batch, k, n)).astype(np.float16)
    c, s = rng.standard_normal((*batch, m, n)).astype(np.float16), rng.standard_normal(n).astype(np.float32)
    chain = [Binary("mul", "s"), Sum("c"), Eltwise("relu")]
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
    device.forced = "gemm_pipelined"
    got = bench.run(device, graph, feeds)[0]
    compare(got, np.maximum(a.astype(np.float64) @ b.astype(np.float64) * s + c, 0))


CONVOLUTIONS = [  # batch, channels, maps, side, kernel, stride, pads
    (2, 16, 24, 6, 1, 1, 0),  # a plain product
    (1, 8, 40, 7, 3, 1, 1),
    (2, 24, 13, 9, 3, 2, 1),  # maps that are stored one at a time
    (1, 3, 16, 11, 5, 2, 2),  # filled up to 4 channels
    (2, 4, 24, 9, 3, 1, 1),  # not filled up, but floats that become halves
    (1, 4, 16, 5, 1, 1, 0),
    (2, 11, 16, 5, 3, 1, 0),  # and to 16
]


@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_convolutions(sizes: tuple[int, ...], device: Any, bench: Any, rng: Any) -> None:
    """By way of the runtime's passes: the source is float32 and plain, so that values are converted and reordered."""
    batch, channels, maps, side, kernel, stride, pad = sizes
    x = rng.standard_normal((batch, channels, side, side)).astype(np.float32)
    w = rng.standard_normal((maps, channels, kernel, kernel)).astype(np.float32)
    b, scale = rng.standard_normal(maps).astype(np.float32), rng.standard_normal((maps, 1, 1)).astype(np.float32)
    expected = bench.convolve(x.astype(np.float16), w.astype(np.float16), stride, (pad,) * 4, 1) + b[:, None, None]
    op = bench.op("Conv", strides=(stride,) * 2, pads=(pad,) * 4)
    chain = [Binary("mul", "scale"), Eltwise("relu"), Sum("c")]
    c = rng.standard_normal(expected.shape).astype(np.float32)
    graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=chain, operands={"scale": scale, "c": c})
    got = bench.run_lowered(device, graph, feeds, {"conv_pipelined"})
    compare(got, np.maximum(expected * scale, 0) + c.astype(np.float16))


VOLUMES = [  # batch, channels, maps, input, kernel, strides, pads, dilations
    (2, 8, 16, (4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 1)),
    (1, 16, 13, (5, 7, 6), (2, 3, 1), (2, 1, 2), (1, 0, 2, 0, 1, 0), (2, 2, 1)),
    (1, 3, 16, (4, 6, 5), (3, 5, 5), (1, 2, 2), (1, 2, 2, 1, 2, 2), (1, 1, 1)),  # filled up to 4 channels
]


@pytest.mark.parametrize("sizes", VOLUMES, ids=str)
def test_volumes(sizes: tuple[Any, ...], device: Any, bench: Any, rng: Any) -> None:
    """Images with a depth."""
    batch, channels, maps, side, kernel, strides, pads, dilations = sizes
    x = rng.standard_normal((batch, channels, *side)).astype(np.float32)
    w = rng.standard_normal((maps, channels, *kernel)).astype(np.float32)
    op = bench.op("Conv", strides=strides, pads=pads, dilations=dilations)
    expected = op.reference(x.astype(np.float16).astype(np.float64), w.astype(np.float16).astype(np.float64))
    graph, feeds = bench.single(op, [x, w], (1,), post_ops=[Eltwise("relu")])
    compare(bench.run_lowered(device, graph, feeds, {"conv_pipelined"}), np.maximum(expected, 0))


ATTENTION = [  # batch, query heads, key heads, queries, keys, size, size of values, and what else
    (2, 2, 2, 40, 70, 32, 32, "mask"),
    (1, 4, 2, 33, 33, 16, 48, "causal"),
    (1, 1, 1, 5, 100, 64, 64, "leaves out"),
    (2, 2, 1, 20, 70, 8, 24, "mask"),
    (1, 2, 2, 19, 33, 36, 60, "causal"),
]


@pytest.mark.parametrize("sizes", ATTENTION)
def test_attention(sizes: tuple[Any, ...], device: Any, bench: Any, rng: Any) -> None:
    """Weights are rounded to halves, too; a row that sees no key is zeros."""
    batch, heads, kv_heads, queries, keys, size, v_size, kind = sizes
    q = rng.standard_normal((batch, heads, queries, size)).astype(np.float16)
    k = rng.standard_normal((batch, kv_heads, keys, size)).astype(np.float16)
    v = rng.standard_normal((batch, kv_heads, keys, v_size)).astype(np.float16)
    wide = [np.repeat(a, heads // a.shape[1], 1).astype(np.float64) for a in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / size**0.5
    given = [q, k, v]
    if kind == "mask":
        given.append(rng.standard_normal((batch, 1, 1, keys)).astype(np.float32))
        scores = scores + given[-1]
    elif kind == "leaves out":
        given.append(rng.random((queries, keys)) < 0.5)
        given[-1][2] = False
        scores = np.where(given[-1], scores, -np.inf)
    else:
        scores = np.where(np.tril(np.ones((queries, keys), bool)), scores, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    graph, feeds = bench.single(bench.op("Attention", is_causal=int(kind == "causal")), given)
    device.forced = "attention_halves"
    compare(bench.run(device, graph, feeds)[0], weights @ wide[2])


@pytest.mark.parametrize(("rows", "size", "source", "result"), [(5, 40, "float16", "float32"), (3, 520, "float32", "float16")])
def test_layer_normalization(rows: int, size: int, source: str, result: str, device: Any, bench: Any, rng: Any) -> None:
    x = (rng.standard_normal((rows, size)) + 3).astype(source)
    scale, bias = rng.standard_normal((2, size)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale + bias
    graph, feeds = bench.single(bench.op("LayerNormalization"), [x, scale, bias], (1, 2))
    types = {**graph.types, graph.outputs[0]: graph.types[graph.outputs[0]].with_dtype(DType.of(result))}
    device.forced = "layer_normalization_halves"
    compare(bench.run(device, graph.replace(types=types), feeds)[0], expected)


@pytest.mark.parametrize(
    ("tiling", "rows", "size", "shift"),
    [
        (Pipeline(16, 16, 32, 16, 16, 2), 17, 40, True),
        (Pipeline(16, 32, 32, 16, 16, 2, 2), 9, 264, False),
    ],
    ids=str,
)
def test_the_rows_of_a_product_are_normalized_in_its_launch(
    tiling: Pipeline, rows: int, size: int, shift: bool, device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, because counters begin at zero again; the residual is added before, and the result is widened."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: tiling)
    x, residual = (rng.standard_normal((2, rows, n)).astype(np.float16) for n in (72, size))
    w, b = (rng.standard_normal((72, size)) / 8).astype(np.float32), rng.standard_normal(size).astype(np.float32)
    scale, bias = rng.standard_normal((2, size)).astype(np.float32)
    g = GraphBuilder()
    names = g.input("x", "float32", x.shape), g.constant(w)
    added = Binary("add", g.input("residual", "float32", residual.shape))
    product = g.node(bench.op("MatMul"), *names, post_ops=[Binary("add", g.constant(b)), added])
    parameters = [g.constant(scale), *([g.constant(bias)] if shift else [])]
    graph = fold_constants(g.graph([g.node(bench.op("LayerNormalization", epsilon=1e-3), product, *parameters)]))
    lowered = assign_layouts(device.lower(graph), device.configurations)
    executable = device.compile(lowered, {})
    assert "gemm_normalized" in {report.kernel for report in executable.reports}
    request = executable.create_request()
    for factor in (1, -2):
        wide = (factor * x).astype(np.float64) @ w.astype(np.float16) + b + residual
        expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * scale
        given = {"x": (factor * x).astype(np.float32), "residual": residual.astype(np.float32)}
        compare(request.run([given[name] for name in lowered.inputs])[0], expected + bias if shift else expected)


@pytest.mark.parametrize("is_output", [False, True])
def test_a_product_that_others_read_is_a_second_result(is_output: bool, device: Any, bench: Any, rng: Any) -> None:
    """As in transformers that normalize before attention: the sum of a product and a residual is the next residual."""
    x, residual = rng.standard_normal((19, 24)).astype(np.float32), rng.standard_normal((19, 40)).astype(np.float32)
    w, v, scale = (rng.standard_normal(dims).astype(np.float32) / 4 for dims in ((24, 40), (40, 40), (40,)))
    g = GraphBuilder()
    added = Binary("add", g.input("residual", "float32", residual.shape))
    product = g.node(bench.op("MatMul"), g.input("x", "float32", x.shape), g.constant(w), post_ops=[added])
    normal = g.node(bench.op("LayerNormalization"), product, g.constant(scale))
    last = g.node(bench.op("MatMul"), normal, g.constant(v), post_ops=[Binary("add", product)])
    graph = fold_constants(g.graph([last, *([product] if is_output else [])]))
    lowered = assign_layouts(device.lower(graph), device.configurations)
    executable = device.compile(lowered, {})
    assert "gemm_normalized" in {report.kernel for report in executable.reports}
    given = {"x": x, "residual": residual}
    found = executable.create_request().run([given[name] for name in lowered.inputs])
    wide = x.astype(np.float64) @ w + residual
    rows = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale.astype(np.float64)
    for got, expected in zip(found, (rows @ v + wide, wide), strict=False):
        np.testing.assert_allclose(got, expected, rtol=0, atol=3e-3 * np.abs(expected).max())


@pytest.mark.parametrize("what", ["read before", "another axis", "statistics", "rows of 12", "not constant"])
def test_products_that_are_not_normalized_in_their_launch(what: str, device: Any, bench: Any) -> None:
    size = 12 if what == "rows of 12" else 16
    g = GraphBuilder()
    weights = np.ones((16, size), np.float16)
    second = g.input("w", "float16", weights.shape) if what == "not constant" else g.constant(weights)
    product = g.node(bench.op("MatMul"), g.input("x", "float16", (4, 16)), second)
    axis = 0 if what == "another axis" else -1
    scale = g.constant(np.ones((4, size) if what == "another axis" else size, np.float16))
    names = ["y", "mean"] if what == "statistics" else ["y"]
    outputs = [*names, *([g.node(bench.op("Softmax"), product)] if what == "read before" else [])]
    g.node(bench.op("LayerNormalization", axis=axis), product, scale, outputs=names)
    lowered = device.lower(fold_constants(g.graph(outputs)))
    assert "LayerNormalization" in {node.op.op_type for node in lowered.nodes}


def test_a_normalized_product_says_what_type_it_has(device: Any, bench: Any) -> None:
    """In float16 between products, and float32 for outputs: plans for other sizes infer types again."""
    g = GraphBuilder()
    x, w, scale = g.input("x", "float32", (9, 64)), np.eye(64, dtype=np.float32), np.ones(64, np.float32)
    for _ in range(2):
        x = g.node(bench.op("LayerNormalization"), g.node(bench.op("MatMul"), x, g.constant(w)), g.constant(scale))
    lowered = device.lower(fold_constants(g.graph([x])))
    merged = [node for node in lowered.nodes if node.op.op_type == "NormalizedProduct"]
    for node in merged:
        inferred = node.op.infer(*[lowered.type_of(name) for name in node.inputs])
        assert inferred[0].dtype is lowered.types[node.writes[0]].dtype
    assert [lowered.types[node.writes[0]].dtype.name for node in merged] == ["FLOAT16", "FLOAT32"]


def test_halves_that_a_model_widens_are_read_as_they_are(device: Any, bench: Any, rng: Any) -> None:
    """Models of float16 compute some operators in float32; a product on matrix units wants what was before."""
    x, w = rng.standard_normal((9, 64)).astype(np.float16), rng.standard_normal((64, 64)).astype(np.float32)
    g = GraphBuilder()
    wide = g.node(bench.op("Cast", to=np.dtype(np.float32)), g.input("x", "float16", x.shape))
    lowered = device.lower(fold_constants(g.graph([g.node(bench.op("MatMul"), wide, g.constant(w))])))
    assert [node.op.op_type for node in lowered.nodes] == ["MatMul"]
    assert lowered.nodes[0].inputs[0] == "x"
    compare(bench.run(device, lowered, [x])[0], x.astype(np.float64) @ w.astype(np.float16).astype(np.float64))


def embedded(bench: Any, words: Any, types: Any, positions: Any, scale: Any, read_twice: bool = False) -> Graph:
    """Normalized sums of rows that a model looks up, as BERT begins, before a product in halves."""
    g = GraphBuilder()
    size = words.shape[-1]
    found = g.node(bench.op("Gather"), g.constant(words), g.input("ids", "int64", (2, 9)))
    kinds = g.node(bench.op("Gather"), g.constant(types), g.input("kinds", "int32", (2, 9)))
    total = g.node(bench.op("Add"), found, kinds, post_ops=[Binary("add", g.constant(positions))])
    outputs = [g.node(bench.op("LayerNormalization"), total, g.constant(scale), g.constant(scale[::-1].copy()))]
    if read_twice:
        outputs.append(g.node(bench.op("Relu"), found))
    return fold_constants(
        g.graph([g.node(bench.op("MatMul"), outputs[0], g.constant(np.eye(size, dtype=np.float32))), *outputs[1:]])
    )


def test_embeddings_are_normalized_in_one_launch(device: Any, bench: Any, rng: Any) -> None:
    words, types, scale = (rng.standard_normal(shape).astype(np.float32) for shape in ((30, 40), (3, 40), (40,)))
    positions = rng.standard_normal((1, 9, 40)).astype(np.float32)
    ids, kinds = rng.integers(-30, 30, (2, 9)), rng.integers(0, 3, (2, 9)).astype(np.int32)
    graph = embedded(bench, words, types, positions, scale)
    lowered = assign_layouts(device.lower(graph), device.configurations)
    assert [node.op.op_type for node in lowered.nodes] == ["NormalizedSum", "MatMul"]
    # Reports name all, and plans for other sizes ask who still reads the positions.
    assert {node.name for node in graph.nodes} <= {name for node in lowered.nodes for name in (node.name, *node.origins)}
    request = device.compile(lowered, {}).create_request()
    wide = words.astype(np.float64)[ids] + types[kinds] + positions
    wide = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    feeds = {"ids": ids, "kinds": kinds}
    compare(request.run([feeds[name] for name in lowered.inputs])[0], wide * scale + scale[::-1])
    with pytest.raises(InferError, match="'kinds': an index is outside axis 0 of size 3; accepted: -3 to 2"):
        request.run([{**feeds, "kinds": kinds + 3}[name] for name in lowered.inputs])


@pytest.mark.parametrize(("positions", "read_twice"), [((2, 1, 40), False), ((1, 9, 40), True)])
def test_embeddings_that_are_not(positions: tuple[int, ...], read_twice: bool, device: Any, bench: Any) -> None:
    """A row for each text cannot be repeated; rows that something else reads are looked up for it as well."""
    tables = [np.ones(shape, np.float32) for shape in ((30, 40), (3, 40), positions, (40,))]
    lowered = device.lower(embedded(bench, *tables, read_twice=read_twice))
    found = [node.op.op_type for node in lowered.nodes]
    assert "Gather" in found
    assert ("NormalizedSum" in found) == read_twice


def test_an_image_stays_in_halves_with_channels_innermost(device: Any, bench: Any, rng: Any) -> None:
    """Depthwise, max pool and the mean between products; only the first product converts, and only the last node widens."""
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
    wide = bench.convolve(x.astype(np.float16), w1.astype(np.float16), 1, (1,) * 4, 1).astype(np.float16)
    wide = bench.convolve(wide, w2.astype(np.float16), 2, (1,) * 4, 16) + b2[:, None, None]
    windows = np.lib.stride_tricks.sliding_window_view(wide, (2, 2), (2, 3))
    compare(got, windows.max((4, 5)).mean((2, 3), keepdims=True))


AVERAGES = [  # kernel, strides, pads, dilations, count_include_pad, ceil_mode
    ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 0, 0),
    ((2, 3), (2, 1), (1, 0, 0, 2), (1, 1), 1, 0),
    ((3, 2), (2, 2), (0, 1, 1, 0), (2, 1), 1, 1),
    ((2, 2), (2, 3), (1, 1, 0, 0), (1, 2), 0, 1),
]


@pytest.mark.parametrize("sizes", AVERAGES, ids=str)
def test_averages_with_channels_innermost(sizes: tuple[Any, ...], device: Any, bench: Any, rng: Any) -> None:
    """Between products; what lies outside counts as each attribute says."""
    kernel, strides, pads, dilations, counts, ceils = sizes
    x, w = rng.standard_normal((2, 8, 9, 11)).astype(np.float32), rng.standard_normal((16, 8, 3, 3)).astype(np.float32)
    op = bench.op(
        "AveragePool",
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        count_include_pad=counts,
        ceil_mode=ceils,
    )
    g = GraphBuilder()
    first = g.node(bench.op("Conv"), g.input("x", "float32", x.shape), g.constant(w))
    graph = fold_constants(g.graph([g.node(bench.op("Relu"), g.node(op, first))]))
    got = bench.run_lowered(device, graph, [x], {"conv_pipelined", "average_pool_innermost"})
    wide = bench.convolve(x.astype(np.float16), w.astype(np.float16), 1, (0,) * 4, 1)
    compare(got, np.maximum(op.reference(wide), 0))


def test_what_float16_may_not_hold_stays_float32(device: Any, bench: Any) -> None:
    """Exp of what a product makes, and a product by numbers beyond 65504."""
    g = GraphBuilder()
    x = g.input("x", "float32", (64, 64))
    product = g.node(bench.op("MatMul"), x, g.constant(np.ones((64, 64), np.float32)))
    exp = g.node(bench.op("Exp"), product)
    large = g.node(bench.op("MatMul"), x, g.constant(np.full((64, 64), 1e5, np.float32)))
    lowered = device.lower(fold_constants(g.graph([exp, large])))
    kinds = {node.op.op_type: lowered.types[node.writes[0]].dtype for node in lowered.nodes}
    assert kinds["Exp"] is DType.FLOAT32
    assert lowered.types[large].dtype is DType.FLOAT32
    (last,) = [node for node in lowered.nodes if node.writes[0] == large]
    assert lowered.types[last.inputs[0]].dtype is DType.FLOAT32


def test_one_product_makes_queries_keys_and_values(device: Any, bench: Any, rng: Any) -> None:
    x = rng.standard_normal((2, 9, 32)).astype(np.float32)
    weights = [(rng.standard_normal((32, 32)) / 5).astype(np.float32) for _ in range(3)]
    rows = [rng.standard_normal(32).astype(np.float32) for _ in range(3)]
    g = GraphBuilder()
    given = g.input("x", "float32", x.shape)
    parts = [
        g.node(bench.op("MatMul"), given, g.constant(w), post_ops=[Binary("add", g.constant(r))])
        for w, r in zip(weights, rows, strict=True)
    ]
    graph = fold_constants(g.graph([g.node(bench.op("Attention", q_num_heads=2, kv_num_heads=2), *parts)]))
    got = bench.run_lowered(device, graph, [x], {"gemm_pipelined", "packed_attention"})
    halves = x.astype(np.float16).astype(np.float64)
    q, k, v = (
        (halves @ w.astype(np.float16) + r).astype(np.float16).astype(np.float64).reshape(2, 9, 2, 16).swapaxes(1, 2)
        for w, r in zip(weights, rows, strict=True)
    )
    scores = np.exp(q @ k.swapaxes(-1, -2) / 4)
    expected = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(2, 9, 32)
    compare(got, expected)


@pytest.mark.parametrize(("size", "mask", "merged"), [(18, 0.0, False), (16, -3e38, True)])
def test_products_are_merged_where_a_kernel_runs_the_result(
    size: int, mask: float, merged: bool, device: Any, bench: Any
) -> None:
    """Heads of 18 are not; a mask beyond float16 stays float32."""
    g = GraphBuilder()
    given = g.input("x", "float32", (1, 5, 32))
    weights = np.ones((32, 2 * size), np.float32)
    parts = [g.node(bench.op("MatMul"), given, g.constant(weights)) for _ in range(3)]
    masked = g.constant(np.full((1, 1, 5, 5), mask, np.float32))
    graph = fold_constants(g.graph([g.node(bench.op("Attention", q_num_heads=2, kv_num_heads=2), *parts, masked)]))
    lowered = assign_layouts(device.lower(graph), device.configurations)
    found = [node for node in lowered.nodes if node.op.op_type in ("Attention", "PackedAttention")]
    assert [node.op.op_type == "PackedAttention" for node in found] == [merged]
    assert lowered.types[found[0].inputs[-1]].dtype is DType.FLOAT32
    assert lowered.types[found[0].inputs[0]].dtype is DType.FLOAT16


def test_on_matrix_units(bench: Any, rng: Any, infos: Sequence[DeviceInfo]) -> None:
    """On a GPU whose asynchronous copies work, all tilings; elsewhere no device claims to have them."""
    plain = OpenCLDevice(infos[0])
    assert not plain.caps.pipeline
    if not plain.caps.ptx:
        return
    device = plain.configured({"INFERENCE_PRECISION_HINT": "f16"})
    a, b = rng.standard_normal((77, 200)).astype(np.float16), rng.standard_normal((200, 72)).astype(np.float16)
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    (kernel,) = (k for k in device.kernels(node) if k.name == "gemm_pipelined")
    assert kernel.supports(node)
    tilings = list(pipelines(kernel.problem(node), device.caps))[::3]
    scale = rng.standard_normal(72).astype(np.float16)
    g = GraphBuilder()
    product = g.node(bench.op("MatMul"), g.input("a", "float16", a.shape), g.constant(b))
    normalized = device.lower(fold_constants(g.graph([g.node(bench.op("LayerNormalization"), product, g.constant(scale))])))
    assert [node.op.op_type for node in normalized.nodes] == ["NormalizedProduct"]
    wide = a.astype(np.float64) @ b.astype(np.float64)
    rows = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale.astype(np.float64)
    for tiling in tilings:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tuned, "tiling", lambda self, problem, chosen=tiling: chosen)
            compare(bench.run(device, graph, feeds)[0], wide)
            compare(bench.run(device, normalized, feeds[:1])[0], rows)


def test_products_whose_rows_are_normalized_are_tuned_apart(device: Any, bench: Any) -> None:
    """Their fastest tiling has few rows for each sub-group that normalizes; that of the product alone may have many."""
    device.caps = dataclasses.replace(device.caps, float_pipeline=False, family="without a table", compute_units=132)
    device._bound = {}
    g = GraphBuilder()
    product = g.node(bench.op("MatMul"), g.input("x", "float16", (128, 1536)), g.constant(np.ones((1536, 384), np.float16)))
    alone = fold_constants(g.graph([product]))
    graph = fold_constants(g.graph([g.node(bench.op("LayerNormalization"), product, g.constant(np.ones(384, np.float16)))]))
    chosen = []
    for node in (TypedNode.of(alone.nodes[0], alone), TypedNode.of(device.lower(graph).nodes[0], device.lower(graph))):
        kernel = next(k for k in device.kernels(node) if k.supports(node))
        problem = kernel.problem(node)
        chosen.append((problem.key, kernel.default(problem)))
    (key, plain), (normalized_key, normalized) = chosen
    assert normalized_key == f"{key} normalized"
    assert normalized.tile_m // normalized.sub_groups < plain.tile_m // plain.sub_groups


def test_parts_of_halves_are_halves_and_sums_read_them(device: Any, bench: Any) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (64, 64))
    product = g.node(bench.op("MatMul"), x, g.constant(np.ones((64, 96), np.float32)))
    g.node(bench.op("Split", axis=1), product, g.constant([32, 64], "int64"), outputs=["a", "b"])
    again = g.node(bench.op("MatMul"), "a", g.constant(np.ones((32, 8), np.float32)))
    total = g.node(bench.op("ReduceSumSquare"), "b", g.constant([1], "int64"))
    lowered = device.lower(fold_constants(g.graph([again, total, g.node(bench.op("Softmax"), "b")])))
    kinds = [node.op.op_type for node in lowered.nodes]
    assert kinds[:5] == ["Convert", "MatMul", "Split", "MatMul", "ReduceSumSquare"]
    assert {lowered.types[name].dtype for name in ("a", "b")} == {DType.FLOAT16}
    (reduction,) = [node for node in lowered.nodes if node.op.op_type == "ReduceSumSquare"]
    assert reduction.inputs[0] == "b"
    assert lowered.types[total].dtype is DType.FLOAT32


def test_transposed_convolutions_are_split_for_halves(device: Any, bench: Any) -> None:
    g = GraphBuilder()
    x, weights = g.input("x", "float32", (1, 64, 8, 8)), g.constant(np.ones((64, 64, 2, 2), np.float32))
    lowered = device.lower(fold_constants(g.graph([g.node(bench.op("ConvTranspose", strides=(2, 2)), x, weights)])))
    assert "ConvTranspose" not in {node.op.op_type for node in lowered.nodes}


@pytest.mark.parametrize(("keepdims", "axes"), [(1, [2, 3]), (0, [-1, 2])])
def test_means_of_pixels(device: Any, bench: Any, rng: Any, keepdims: int, axes: list[int]) -> None:
    """A ReduceMean over all spatial axes is like GlobalAveragePool; over others it is not."""
    x = rng.standard_normal((2, 16, 5, 7)).astype(np.float16)
    op = bench.op("ReduceMean", keepdims=keepdims)
    graph, feeds = bench.single(op, [x, np.int64(axes)], (1,))
    got = bench.run_lowered(device, graph, feeds, {"mean_channels"})
    compare(got, x.astype(np.float64).mean((2, 3), keepdims=bool(keepdims)))
    other, _ = bench.single(op, [x, np.int64([1, 2])], (1,))
    assert "mean_channels" not in bench.accepted(device, other, other.nodes[0])
