"""Groups that share the slices of all tiles evenly (stream-k): with emulated instructions, against float64 and integers."""

import copy
import itertools
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.device import NHWC, Binary, DeviceInfo, Eltwise, Sum, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._bytes import ByteTiles, Images
from dovetail_gpu_opencl.kernels._gemm_pipelined import GemmPipelined
from dovetail_gpu_opencl.kernels._pipelined import SHAPES, Pipeline, Pipelined, estimate, pipelines, weighed
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Counters, Scratch
from dovetail_gpu_opencl.source import assemble
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

exhaustive = pytest.mark.exhaustive(0.06)  # each compiles programs whose emulated instructions take drivers long

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6}
"""Of the largest result: factors are of the type already, sums are float32, results are rounded to the type once."""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Pipeline], Any]:
    """`device(dtype, tiling)`: a device with emulated matrix units for this type, that takes products in this tiling."""

    def opened(dtype: str, tiling: Pipeline) -> Any:
        found = copy.copy(kind_device("GPU"))
        found._bound = {}
        units = {"float16": "pipeline", "bfloat16": "bfloat_pipeline", "float32": "float_pipeline"}
        has = {name: dtype == of for of, name in units.items()}
        hint = {"float16": "f16", "bfloat16": "bf16", "float32": ""}[dtype]
        found.caps = replace(found.caps, matrix=hint, ptx=True, compute_units=1, **has)
        monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.assemble", assembled)
        monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.PATIENCE", np.inf)
        monkeypatch.setattr("dovetail_gpu_opencl.precision.WORTH", 0)  # small images are worth it, too
        monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: tiling)
        return found

    return opened


@pytest.fixture
def byte_device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[Pipeline], Any]:
    """`byte_device(tiling)`: one whose products of 8-bit numbers, in OpenCL C, have a fence in place of PTX's."""

    def fenced(file: str, defines: Mapping[str, object], *fragments: str) -> str:
        return "#define FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)\n" + assemble(file, defines, *fragments)

    def opened(tiling: Pipeline) -> Any:
        monkeypatch.setattr("dovetail_gpu_opencl.kernels._bytes.assemble", fenced)
        monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: tiling)
        found = copy.copy(kind_device("GPU"))
        found._bound = {}
        return found

    return opened


def scaling(scale: float, zero: int, dtype: Any) -> Scaling:
    return Scaling(np.asarray(scale, np.float32), np.asarray(zero, dtype), 1)


def compare(got: Any, expected: Any, tolerance: float) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max())


PRODUCTS = [  # batch, m, n, k, and a tiling: with tiles of 32 x 32 the first has 4 tiles of 3 slices (of floats 5)
    ((), 33, 40, 72, Pipeline(32, 32, 32, 16, 16, 3, streams=5)),  # all groups share
    ((), 33, 40, 72, Pipeline(32, 32, 32, 16, 16, 3, streams=2)),  # whole tiles alone
    ((), 70, 37, 136, Pipeline(32, 16, 32, 32, 16, 2, streams=7)),  # 9 tiles of 5 slices; columns are stored one at a time
    ((), 70, 37, 136, Pipeline(16, 32, 64, 16, 16, 4, streams=1)),  # one group for all
    ((), 17, 24, 200, Pipeline(32, 32, 32, 16, 16, 6, streams=40)),  # more groups than slices: one each, and none
    ((3,), 17, 24, 104, Pipeline(16, 16, 32, 16, 16, 2, streams=11)),  # 12 tiles of three products
]


@exhaustive
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("batch", "m", "n", "k", "tiling"), PRODUCTS, ids=str)
def test_products(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    tiling: Pipeline,
    dtype: str,
    device: Any,
    bench: Any,
    rng: Any,
) -> None:
    """With a residual and post-ops, one time for each element. Runs twice with the same buffers: counters begin at zero again."""
    a, b = (rng.standard_normal(dims).astype(TYPES[dtype]) for dims in ((*batch, m, k), (*batch, k, n)))
    c, s = rng.standard_normal((*batch, m, n)).astype(TYPES[dtype]), rng.standard_normal(n).astype(np.float32)
    chain = [Binary("mul", "s"), Sum("c"), Eltwise("relu")]
    graph, (x, *operands) = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
    opened = device(dtype, tiling)
    opened.forced = "gemm_pipelined"
    opened_request = opened.compile(graph, {}).create_request()
    first = opened_request.run([x, *operands])[0].copy()
    opened_request.run([-x, *operands])
    again = opened_request.run([x, *operands])[0]
    wide = a.astype(np.float64) @ b.astype(np.float64)
    compare(first, np.maximum(wide * s + c.astype(np.float64), 0), TOLERANCES[dtype])
    np.testing.assert_array_equal(again, first)


CONVOLUTIONS = [  # batch, channels, maps, side, kernel, stride, pads, streams
    (2, 16, 24, 6, 3, 1, 1, 7),  # 3 tiles of 5 slices (of floats 9)
    (1, 24, 13, 9, 3, 2, 1, 3),  # maps that are stored one at a time
    (2, 4, 40, 7, 5, 2, 2, 5),
]


@exhaustive
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_convolutions(sizes: tuple[int, ...], dtype: str, device: Any, bench: Any, rng: Any) -> None:
    """With a bias, a chain and a residual; windows reach outside the image, and a slice has several of their elements."""
    batch, channels, maps, side, kernel, stride, pad, streams = sizes
    x, w = (
        rng.standard_normal(d).astype(TYPES[dtype]) for d in ((batch, channels, side, side), (maps, channels, kernel, kernel))
    )
    b, scale = rng.standard_normal(maps).astype(np.float32), rng.standard_normal((maps, 1, 1)).astype(np.float32)
    expected = bench.convolve(x, w, stride, (pad,) * 4, 1) + b[:, None, None]
    c = rng.standard_normal(expected.shape).astype(TYPES[dtype])
    op = bench.op("Conv", strides=(stride,) * 2, pads=(pad,) * 4)
    chain = [Binary("mul", "scale"), Eltwise("relu"), Sum("c")]
    graph, feeds = bench.single(op, [x, w, b.astype(TYPES[dtype])], (1, 2), post_ops=chain, operands={"scale": scale, "c": c})
    opened = device(dtype, Pipeline(32, 32, 32, 16, 16, 3, streams=streams))
    executable = opened.compile(assign_layouts(graph, opened.configurations), {})
    assert "conv_pipelined" in {report.kernel for report in executable.reports}
    expected = np.maximum((expected + (b.astype(TYPES[dtype]).astype(np.float64) - b)[:, None, None]) * scale, 0)
    compare(executable.create_request().run(feeds)[0], expected + c.astype(np.float64), TOLERANCES[dtype])


@exhaustive
def test_infinities_are_found_after_parts_are_added(device: Any, bench: Any, rng: Any) -> None:
    """As multiply-adds of floats: one infinite factor, in a slice that another group computes, reaches its row alone."""
    a, b = rng.standard_normal((20, 136)).astype(np.float32), rng.standard_normal((136, 24)).astype(np.float32)
    a[3, 130], a[7, 2] = np.inf, -np.inf
    b[[2, 130]] = np.abs(b[[2, 130]])
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    opened = device("float32", Pipeline(32, 32, 32, 16, 16, 3, streams=4))
    opened.forced = "gemm_pipelined"
    (got,) = bench.run(opened, graph, feeds)
    assert (got[3] == np.inf).all()
    assert (got[7] == -np.inf).all()
    rest = np.delete(np.arange(20), [3, 7])
    compare(got[rest], a[rest].astype(np.float64) @ b.astype(np.float64), TOLERANCES["float32"])


@exhaustive
@pytest.mark.parametrize(
    ("tiling", "rows", "size"),
    [(Pipeline(16, 16, 32, 16, 16, 2, streams=7), 17, 40), (Pipeline(16, 32, 32, 16, 16, 2, streams=3), 9, 264)],
    ids=str,
)
def test_rows_are_normalized_once_all_their_tiles_are_there(
    tiling: Pipeline, rows: int, size: int, device: Any, bench: Any, rng: Any
) -> None:
    """A group may add up several tiles and normalize their rows after any of them. Twice: counters begin at zero again."""
    x, residual = (rng.standard_normal((2, rows, n)).astype(np.float16) for n in (72, size))
    w, scale = (rng.standard_normal((72, size)) / 8).astype(np.float32), rng.standard_normal(size).astype(np.float32)
    g = GraphBuilder()
    names = g.input("x", "float32", x.shape), g.constant(w)
    added = Binary("add", g.input("residual", "float32", residual.shape))
    product = g.node(bench.op("MatMul"), *names, post_ops=[added])
    graph = fold_constants(g.graph([g.node(bench.op("LayerNormalization", epsilon=1e-3), product, g.constant(scale))]))
    opened = device("float16", tiling)
    lowered = assign_layouts(opened.lower(graph), opened.configurations)
    executable = opened.compile(lowered, {})
    assert "gemm_normalized" in {report.kernel for report in executable.reports}
    request = executable.create_request()
    for factor in (1, -2):
        wide = (factor * x).astype(np.float64) @ w.astype(np.float16) + residual
        expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * scale
        given = {"x": (factor * x).astype(np.float32), "residual": residual.astype(np.float32)}
        compare(request.run([given[name] for name in lowered.inputs])[0], expected, TOLERANCES["float16"])


@pytest.mark.parametrize(("batch", "rows"), [((), 0), ((0,), 5)])
def test_nothing_is_launched_for_no_rows(batch: tuple[int, ...], rows: int, device: Any, bench: Any) -> None:
    a, b = np.zeros((*batch, rows, 64), np.float16), np.zeros((*batch, 64, 24), np.float16)
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    opened = device("float16", Pipeline(32, 32, 32, 16, 16, 3, streams=4))
    opened.forced = "gemm_pipelined"
    assert bench.run(opened, graph, feeds)[0].shape == (*batch, rows, 24)


BYTES = [  # m, n, k, and a tiling; slices have 64 or 128 bytes
    (33, 40, 300, Pipeline(32, 32, 32, 16, 16, 3, streams=7)),
    (70, 37, 1030, Pipeline(32, 16, 64, 32, 16, 2, streams=4)),  # sums that are stored one at a time
    (5, 8, 520, Pipeline(32, 32, 32, 16, 16, 4, streams=20)),  # more groups than slices
    (40, 64, 400, Pipeline(16, 64, 32, 16, 64, 2, streams=5)),  # results straight out of registers in the quantized product
]


@exhaustive
@pytest.mark.parametrize(("m", "n", "k", "tiling"), BYTES, ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_whole_numbers(m: int, n: int, k: int, tiling: Pipeline, dtype: Any, byte_device: Any, bench: Any, rng: Any) -> None:
    """Sums with a zero point, bit for bit, from the same buffers twice; START is added once however many groups share a tile."""
    limits = np.iinfo(dtype)
    a, b = rng.integers(limits.min, limits.max, (m, k), dtype, endpoint=True), rng.integers(-127, 127, (k, n)).astype(np.int8)
    graph, feeds = bench.single(bench.op("MatMulInteger"), [a, b, np.array(9, dtype)], (1, 2))
    device = byte_device(tiling)
    device.forced = "gemm_bytes"
    (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(got, (a.astype(np.int64) - 9) @ b.astype(np.int64))


SPLIT = [replace(tiling, streams=0, splits=3) for *_, tiling in BYTES]


@pytest.mark.parametrize("tiling", [*(pytest.param(c[-1], marks=exhaustive) for c in BYTES), *SPLIT], ids=str)
def test_quantized_convolutions(tiling: Pipeline, byte_device: Any, bench: Any, rng: Any) -> None:
    """With a bias in the sums and an image that is added to them; elements outside count as the zero point."""
    x, w = rng.integers(0, 255, (2, 32, 7, 5), np.uint8, endpoint=True), rng.integers(-90, 90, (48, 32, 3, 3)).astype(np.int8)
    counts, addend = rng.integers(-999, 999, 48), rng.integers(-128, 127, (2, 48, 7, 5), np.int8, endpoint=True)
    sx, sw, other = scaling(0.25, 3, np.uint8), scaling(0.5, 0, np.int8), scaling(4, -3, np.int8)
    middle, last = scaling(64, 9, np.int8), scaling(32, 7, np.int8)
    wide = bench.convolve(x.astype(np.float64) - 3, w, 1, (1,) * 4, 1) + counts[:, None, None]
    steps = [QuantizedStep(bench.op("Conv", pads=(1,) * 4), (0, 1, 2)), middle, QuantizedStep(bench.op("Add"), (-1, 3))]
    op = Quantized(steps, [sx, sw, None, other], last)
    graph, feeds = bench.single(op, [x, w, (counts / 8).astype(np.float32), addend], (1, 2))
    whole = np.clip(np.rint(wide / 8 / 64) + 9, -128, 127) - 9
    expected = np.clip(np.rint((whole * 64 + (addend.astype(np.float64) + 3) * 4) / 32) + 7, -128, 127).astype(np.int8)
    laid = graph.replace(
        types={
            name: t.with_layout(NHWC) if t.rank == 4 and name != graph.nodes[0].inputs[1] else t
            for name, t in graph.types.items()
        }
    )
    device = byte_device(tiling)
    device.forced = "quantized_conv_bytes"
    given = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)).reshape(a.shape) for a in feeds]
    (got,) = bench.run(device, laid, given, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(got.reshape(2, 7, 5, 48).transpose(0, 3, 1, 2), expected)
    assert len(np.unique(expected)) > 30


SHAPE = (128, 128, 32, 64, 32, 3)


def chosen(caps: Any, tiles: tuple[int, int], k: int) -> Pipeline:
    """The choice of the cost model for a product of halves of so many tiles of `SHAPE`, among the tilings with this shape."""
    problem = Problem("product", 1, tiles[0] * SHAPE[0], tiles[1] * SHAPE[1], k, 2)
    return min(pipelines(problem, caps, (SHAPE,)), key=lambda t: weighed(problem, t, caps))


@pytest.fixture
def caps(kind_device: Callable[[str], Any]) -> Any:
    """Those of a GPU with 132 compute units."""
    own = kind_device("GPU").caps
    limits: dict[str, Any] = {"max_work_group_size": 1024, "max_work_item_sizes": (1024, 1024, 64), "local_memory": 48 * 1024}
    return replace(own, compute_units=132, pipeline=True, ptx=True, compute_capability=(9, 0), **limits)


@pytest.mark.parametrize(
    ("tiles", "k", "shared"),
    [
        ((7, 19), 4096, True),  # one tile more than compute units
        ((12, 12), 4096, True),
        ((11, 12), 4096, False),  # as many
        ((7, 19), 256, False),  # parts would be short
        ((40, 19), 4096, False),  # the last of six waves is a small share
    ],
)
def test_the_cost_model_shares_slices_where_the_last_wave_is_poor(
    tiles: tuple[int, int], k: int, shared: bool, caps: Any
) -> None:
    assert (chosen(caps, tiles, k).streams > 0) == shared


def test_the_cost_model_wants_a_tenth_less(caps: Any, rng: Any) -> None:
    """Of the time of the best tiling without streams; both sides of the condition are among these problems."""
    seen = set()
    for tiles, k in zip(rng.integers(1, 24, (80, 2)), rng.integers(4, 128, 80), strict=True):
        problem = Problem("product", 1, int(tiles[0]) * SHAPE[0], int(tiles[1]) * SHAPE[1], int(k) * 64, 2)
        costs = {t: estimate(problem, t, caps) for t in pipelines(problem, caps, (SHAPE,))}
        plain = min(cost for t, cost in costs.items() if not t.streams)
        shared = min((cost for t, cost in costs.items() if t.streams), default=np.inf)
        found = chosen(caps, (int(tiles[0]), int(tiles[1])), int(k) * 64)
        assert (found.streams > 0) == (shared < 0.9 * plain)
        seen.add((found.streams > 0, shared < plain))
    assert seen == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize("itemsize", [2, 4])
def test_groups_that_share_slices_are_there_at_once(itemsize: int, caps: Any) -> None:
    """Multiples of the compute units, in groups whose items and local memory fit; each with slices enough, and no splits."""
    found = [t for t in pipelines(Problem("product", 1, 1500, 1536, 8192, itemsize), caps) if t.streams]
    assert found
    for tiling in found:
        share, rest = divmod(tiling.streams, caps.compute_units)
        assert rest == 0
        assert share * tiling.items <= 667
        assert share * tiling.local_bytes() <= 4 * caps.local_memory
        assert tiling.splits == 1
    assert not [t for t in pipelines(Problem("product", 1, 1500, 1536, 128 // itemsize, itemsize), caps) if t.streams]


def test_tables_with_and_without_the_number_of_streams(caps: Any) -> None:
    """Tables that were written before have seven numbers."""
    kernel = GemmPipelined(lambda node: None).on(caps)
    shared = Pipeline(*SHAPE, streams=264)
    assert shared.numbers() == [*SHAPE, 1, 264]
    assert kernel.read(shared.numbers()) == shared
    assert kernel.read([*SHAPE, 3]) == Pipeline(*SHAPE, splits=3, streams=0)
    assert kernel.read([*SHAPE]) is None
    assert kernel.read([*SHAPE, 1, 264, 0]) is None


def test_without_matrix_units_groups_do_not_share_tiles_of_bytes(caps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCL 1.2 has no fence between groups; PTX has."""
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._bytes.ByteTiles.__abstractmethods__", frozenset())
    problem = Images(1500, 16384, 1536).problem()
    for units in (True, False):
        other = replace(caps, ptx=units)
        found = list(ByteTiles().on(other).possible(problem))
        assert found
        assert any(t.streams for t in found) == units


@pytest.mark.parametrize(
    ("tiling", "parts"), [(Pipeline(32, 32, 32, 16, 16, 3, streams=5), 10), (Pipeline(32, 32, 32, 16, 16, 3), 0)]
)
def test_a_group_has_two_places_in_the_work_buffer(tiling: Pipeline, parts: int, device: Any, bench: Any) -> None:
    graph, _ = bench.single(bench.op("MatMul"), [np.zeros((33, 72), np.float16), np.ones((72, 40), np.float16)], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    opened = device("float16", tiling)
    opened.forced = "gemm_pipelined"
    (kernel,) = opened.kernels(node)
    (launch,) = kernel.launches(node)
    assert sum(a.nbytes for a in launch.arguments if isinstance(a, Scratch)) == parts * 32 * 32 * 4
    assert [a.count for a in launch.arguments if isinstance(a, Counters)] == ([4] if parts else [])
    assert launch.global_size == ((tiling.streams or 4) * tiling.items,)


@pytest.mark.parametrize(("hint", "dtype"), [("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32"), ("f32", "int8")])
def test_on_matrix_units(hint: str, dtype: str, bench: Any, rng: Any, infos: Sequence[DeviceInfo], monkeypatch: Any) -> None:
    """On an NVIDIA GPU from sm_80 on, many runs with the same buffers; elsewhere no kernel offers such tilings."""
    plain = OpenCLDevice(infos[0])
    on_units = plain.caps.compute_capability >= (8, 0)
    opened = plain.configured({"INFERENCE_PRECISION_HINT": hint}) if on_units else plain
    if dtype == "int8":
        a, b = (rng.integers(-127, 127, dims).astype(np.int8) for dims in ((300, 2000), (2000, 328)))
    else:
        a, b = (rng.standard_normal(dims).astype(TYPES[dtype]) for dims in ((300, 2000), (2000, 328)))
    graph, feeds = bench.single(bench.op("MatMulInteger" if dtype == "int8" else "MatMul"), [a, b], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    kernels = [k for k in opened.kernels(node) if isinstance(k, Pipelined) and (on_units or k.supports(node))]
    assert bool(kernels) == on_units or dtype == "int8"
    problems = [(kernel, kernel.problem(node)) for kernel in kernels]
    if not on_units:
        assert not any(t.streams for kernel, problem in problems for t in kernel.possible(problem))
        return
    expected = a.astype(np.float64) @ b.astype(np.float64)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.PATIENCE", np.inf)
    for shape, streams in itertools.product(SHAPES[1::3], (7, 132, 264, 1000)):
        tiling = Pipeline(*shape, streams=streams)
        monkeypatch.setattr(Pipelined, "tiling", lambda self, problem, chosen=tiling: chosen)
        monkeypatch.setattr(Pipelined, "settled", lambda self, problem, node, chosen=tiling: chosen)
        executable = opened.compile(graph, {})
        assert [report.kernel for report in executable.reports] == [kernels[0].name]
        request = executable.create_request()
        first = request.run(feeds)[0].copy()
        compare(first, expected, TOLERANCES.get(dtype, 0))
        for _ in range(20):
            np.testing.assert_array_equal(request.run(feeds)[0], first, str(tiling))
