"""Pointwise, depthwise and pointwise convolutions in one launch: which nodes become one, the results, the choice of a tile."""

import copy
import dataclasses
import math
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import NHWC, Accepted, Binary, DType, Eltwise, Graph, Node, Refusal, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.kernels._pointwise_depthwise import PointwiseDepthwiseTiles, Tile
from dovetail_gpu_opencl.kernels._wide_and_deep import PointwiseDepthwise

assembled = runpy.run_path(str(Path(__file__).with_name("_matrix_units.py")))["assembled"]

TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 2.0**-8}
"""Of the largest result: sums are float32, results are rounded once."""
CLIP = Eltwise("clip", alpha=0.0, beta=6.0)


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device for which two launches are never faster."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    monkeypatch.setattr(PointwiseDepthwiseTiles, "_slower", lambda self, problem, first: None)
    return device


@pytest.fixture
def fenced(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `device`, with fences between work groups, for three convolutions in one launch."""
    if not device.caps.ptx:
        monkeypatch.setattr("dovetail_gpu_opencl.kernels._pointwise_depthwise.assemble", assembled)
        device.caps = dataclasses.replace(device.caps, ptx=True)
    return device


def pair(
    bench: Any,
    arrays: Sequence[Any],
    *,
    chains: tuple[Sequence[Eltwise], Sequence[Any]] = ((), ()),
    operands: dict[str, Any] | None = None,
    also: Sequence[str] = (),
    **window: Any,
) -> Graph:
    """X through Conv of W and B, and Conv of DeepW and DeepB for each channel; B and DeepB may be None."""
    x, w, b, deep_w, deep_b = arrays
    g = GraphBuilder()
    given = g.input("x", str(DType.of(x.dtype)), x.shape)
    names = [given, *(g.constant(a) for a in (w, b) if a is not None)]
    first = g.node(bench.op("Conv"), *names, outputs=["first"])
    second = [first, *(g.constant(a) for a in (deep_w, deep_b) if a is not None)]
    for name, array in (operands or {}).items():
        g.input(name, str(DType.of(array.dtype)), array.shape)
    g.node(bench.op("Conv", group=len(w), **window), *second, outputs=["y"])
    graph: Graph = fold_constants(g.graph(["y", *also]))
    nodes = [dataclasses.replace(n, post_ops=tuple(c)) for n, c in zip(graph.nodes, chains, strict=True)]
    return graph.replace(nodes=tuple(nodes))


def run(device: Any, graph: Graph, feeds: Sequence[Any]) -> Any:
    lowered = device.lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["PointwiseDepthwise"]
    executable = device.compile(assign_layouts(lowered, device.configurations), {})
    (node,) = lowered.nodes
    name = "pointwise_depthwise" if node.op.narrow is None else "pointwise_depthwise_pointwise"
    assert next(r.kernel for r in executable.reports if r.kernel != "reorder") == name
    request = executable.create_request()
    first = request.run(feeds)[0].copy()
    assert np.array_equal(first, request.run(feeds)[0], equal_nan=True)
    return first


def chosen(device: Any, graph: Graph, index: int) -> Any:
    """The device, which takes the merged node of a graph in one of its layouts alone."""
    own = device.lower(graph)
    (node,) = own.nodes
    config, other = device.configurations(TypedNode.of(node, own))[index], copy.copy(device)
    other.configurations = lambda n: (config,) if n.op.stem == "pointwise_depthwise" else device.configurations(n)
    return other


def innermost(device: Any, graph: Graph) -> Any:
    """As `chosen`, with channels innermost."""
    own = device.lower(graph)
    config = device.configurations(TypedNode.of(own.nodes[0], own))[1]
    assert config.inputs[0] == config.outputs[0] == NHWC
    return chosen(device, graph, 1)


def expected(
    bench: Any, arrays: Sequence[Any], chain: Callable[[Any], Any], stride: int, pads: Sequence[int], dilation: int
) -> Any:
    x, w, b, deep_w, deep_b = (None if a is None else a.astype(np.float64) for a in arrays)
    wide = bench.convolve(x, w, 1, (0,) * 4, 1) + (0 if b is None else b[:, None, None])
    spread = np.zeros((*deep_w.shape[:2], *((k - 1) * dilation + 1 for k in deep_w.shape[2:])))
    spread[:, :, ::dilation, ::dilation] = deep_w
    return bench.convolve(chain(wide), spread, stride, pads, len(deep_w)) + (0 if deep_b is None else deep_b[:, None, None])


def numbers(rng: Any, dtype: str, sizes: tuple[int, int, int, tuple[int, int]], kernel: tuple[int, int]) -> list[Any]:
    batch, channels, hidden, image = sizes
    shapes = [(batch, channels, *image), (hidden, channels, 1, 1), (hidden,), (hidden, 1, *kernel), (hidden,)]
    return [rng.standard_normal(shape).astype(DType(dtype).numpy) for shape in shapes]


def compare(got: Any, wanted: Any, dtype: str) -> None:
    assert (str(DType.of(got.dtype)), got.shape) == (dtype, wanted.shape)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=TOLERANCE[dtype] * np.abs(wanted).max())


def block(bench: Any, arrays: Sequence[Any], chains: Sequence[Sequence[Any]], operands: dict[str, Any], **window: Any) -> Graph:
    """An inverted residual: as `pair`, and Conv of NarrowW and NarrowB, the last of `arrays`."""
    *begin, w, b = arrays
    g = GraphBuilder()
    given = g.input("x", str(DType.of(arrays[0].dtype)), arrays[0].shape)
    for name, array in operands.items():
        g.input(name, str(DType.of(array.dtype)), array.shape)
    first = g.node(bench.op("Conv"), given, *(g.constant(a) for a in begin[1:3] if a is not None))
    deep = bench.op("Conv", group=len(begin[1]), **window)
    second = g.node(deep, first, *(g.constant(a) for a in begin[3:] if a is not None))
    g.node(bench.op("Conv"), second, *(g.constant(a) for a in (w, b) if a is not None), outputs=["y"])
    graph: Graph = fold_constants(g.graph(["y"]))
    return graph.replace(nodes=tuple(dataclasses.replace(n, post_ops=tuple(c)) for n, c in zip(graph.nodes, chains, strict=True)))


CASES = [  # batch, channels, channels of the result, image, kernel, stride, pads, dilation, tile
    ((1, 16, 24, (14, 14)), (3, 3), 1, (1, 1, 1, 1), 1, Tile(7, 7, 16, 64)),
    ((2, 5, 13, (9, 12)), (3, 3), 2, (1, 1, 1, 1), 1, Tile(3, 4, 8, 32)),  # less than a slice, tiles past the result
    ((1, 7, 32, (7, 7)), (5, 5), 1, (2, 2, 2, 2), 1, Tile(7, 7, 32, 256)),  # a window as large as the image
    ((3, 4, 8, (11, 8)), (3, 2), 1, (0, 2, 3, 0), 1, Tile(5, 3, 8, 64)),  # pads on some sides
    ((1, 3, 12, (10, 10)), (3, 3), 1, (2, 2, 2, 2), 2, Tile(4, 5, 8, 64)),
    ((1, 3, 12, (5, 1)), (3, 1), 3, (1, 0, 1, 0), 1, Tile(2, 1, 8, 64)),
]


@pytest.mark.exhaustive(0.2)  # each compiles a program
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results(case: Any, dtype: str, device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, kernel, stride, pads, dilation, tile = case
    monkeypatch.setattr(PointwiseDepthwiseTiles, "tiling", lambda self, problem: tile)
    arrays = numbers(rng, dtype, sizes, kernel)
    window = {"strides": (stride,) * 2, "pads": pads, "dilations": (dilation,) * 2}
    graph = pair(bench, arrays, chains=([CLIP], [CLIP]), **window)
    wanted = expected(bench, arrays, lambda s: np.clip(s, 0, 6), stride, pads, dilation)
    compare(run(device, graph, [arrays[0]]), np.clip(wanted, 0, 6), dtype)


@pytest.mark.exhaustive(0.2)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_inverted_residuals(
    case: Any, channels: int, dtype: str, fenced: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second pointwise convolution, whose sums the slices of a tile share, and a residual sum behind."""
    sizes, kernel, stride, pads, dilation, tile = case
    monkeypatch.setattr(PointwiseDepthwiseTiles, "tiling", lambda self, problem: tile)
    arrays = numbers(rng, dtype, sizes, kernel)
    arrays += [rng.standard_normal(shape).astype(arrays[0].dtype) for shape in ((channels, sizes[2], 1, 1), (channels,))]
    window = {"strides": (stride,) * 2, "pads": pads, "dilations": (dilation,) * 2}
    deep = np.clip(expected(bench, arrays[:5], lambda s: np.clip(s, 0, 6), stride, pads, dilation), 0, 6)
    wanted = bench.convolve(deep, arrays[5].astype(np.float64), 1, (0,) * 4, 1) + arrays[6].astype(np.float64)[:, None, None]
    before = rng.standard_normal(wanted.shape).astype(arrays[0].dtype)
    graph = block(bench, arrays, ([CLIP], [CLIP], [Binary("add", "before")]), {"before": before}, **window)
    compare(run(fenced, graph, [arrays[0], before]), wanted + before.astype(np.float64), dtype)


@pytest.mark.parametrize("layout", ["plain", "channels innermost"])
def test_many_slices(layout: str, fenced: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last group adds up 11 shares, four at a time, of 325 vectors, 256 at a time; the last of each are fewer."""
    monkeypatch.setattr(PointwiseDepthwiseTiles, "tiling", lambda self, problem: Tile(5, 5, 8, 64))
    arrays = numbers(rng, "float32", (2, 6, 88, (9, 7)), (3, 3))
    arrays += [rng.standard_normal(shape).astype(np.float32) for shape in ((50, 88, 1, 1), (50,))]
    deep = expected(bench, arrays[:5], lambda s: np.clip(s, 0, 6), 1, (1,) * 4, 1)
    wanted = bench.convolve(deep, arrays[5].astype(np.float64), 1, (0,) * 4, 1) + arrays[6].astype(np.float64)[:, None, None]
    before = rng.standard_normal(wanted.shape).astype(np.float32)
    graph = block(bench, arrays, ([CLIP], [], [Binary("add", "before")]), {"before": before}, pads=(1,) * 4)
    device = fenced if layout == "plain" else innermost(fenced, graph)
    compare(run(device, graph, [arrays[0], before]), wanted + before.astype(np.float64), "float32")


@pytest.mark.parametrize("layout", ["plain", "channels innermost"])
def test_chains_in_inverted_residuals(layout: str, fenced: Any, bench: Any, rng: Any) -> None:
    """Chains with a function of their own, whose value for channels that do not exist is infinite; and biases left out."""
    arrays = numbers(rng, "float32", (2, 8, 22, (6, 5)), (3, 3))
    arrays += [rng.standard_normal((10, 22, 1, 1)).astype(np.float32), None]
    arrays[2], arrays[4] = None, np.full(22, 50, np.float32)
    chains = ([Eltwise("gelu_erf")], [Eltwise("gelu_erf"), Eltwise("log")], [CLIP])
    graph = block(bench, arrays, chains, {}, pads=(1,) * 4)
    device = fenced if layout == "plain" else innermost(fenced, graph)
    gelu = np.vectorize(lambda v: v / 2 * (1 + math.erf(v / math.sqrt(2))))
    deep = np.log(gelu(expected(bench, arrays[:5], gelu, 1, (1,) * 4, 1)))
    wanted = np.clip(bench.convolve(deep, arrays[5].astype(np.float64), 1, (0,) * 4, 1), 0, 6)
    compare(run(device, graph, [arrays[0]]), wanted, "float32")


@pytest.mark.parametrize("layout", ["plain", "channels innermost"])
def test_operands_and_no_biases(layout: str, device: Any, bench: Any, rng: Any) -> None:
    """A chain of functions between both, and operands of the result behind; in both layouts."""
    arrays = numbers(rng, "float32", (2, 8, 24, (6, 5)), (3, 3))
    arrays[2] = arrays[4] = None
    c, s, t = (rng.standard_normal(shape).astype(np.float32) for shape in [(2, 24, 6, 5), (24, 1, 1), (6, 1)])
    chains = (
        [Eltwise("linear", alpha=2.0, beta=0.5), Eltwise("hardswish", alpha=1 / 6, beta=0.5)],
        [Binary("mul", "s"), Binary("add", "c"), Binary("mul", "t")],
    )
    graph = pair(bench, arrays, chains=chains, operands={"c": c, "s": s, "t": t}, pads=(1,) * 4)
    if layout != "plain":
        device = innermost(device, graph)
    wanted = expected(bench, arrays, lambda v: (2 * v + 0.5) * np.clip((2 * v + 0.5) / 6 + 0.5, 0, 1), 1, (1,) * 4, 1)
    compare(run(device, graph, [arrays[0], c, s, t]), (wanted * s + c) * t, "float32")


@pytest.mark.parametrize("kib", [4, 6])
def test_several_steps(kib: int, device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that do not fit into local memory at once, the last of them fewer than the others."""
    device.caps = dataclasses.replace(device.caps, local_memory=kib << 10)
    tile = Tile(3, 4, 8, 64)
    monkeypatch.setattr(PointwiseDepthwiseTiles, "tiling", lambda self, problem: tile)
    arrays = numbers(rng, "float32", (1, 47, 20, (9, 8)), (3, 3))
    lowered = device.lower(pair(bench, arrays, pads=(1,) * 4))
    problem = PointwiseDepthwiseTiles().on(device.caps).problem(TypedNode.of(lowered.nodes[0], lowered))
    assert problem is not None
    step = problem.step(tile, kib << 10)
    assert 1 < step < 47
    assert 47 % step
    assert 4 * problem.floats(tile, step) <= kib << 10
    compare(
        run(device, pair(bench, arrays, pads=(1,) * 4), [arrays[0]]),
        expected(bench, arrays, lambda s: s, 1, (1,) * 4, 1),
        "float32",
    )


def test_a_batch_of_none(device: Any, bench: Any, rng: Any) -> None:
    arrays = numbers(rng, "float32", (0, 8, 16, (6, 5)), (3, 3))
    assert run(device, pair(bench, arrays, pads=(1,) * 4), [arrays[0]]).shape == (0, 16, 6, 5)


def test_what_lies_outside_counts_as_zero(device: Any, bench: Any, rng: Any) -> None:
    """And not as what the pointwise convolution makes of zero, which is its bias; infinities inside stay where they are seen."""
    arrays = numbers(rng, "float32", (1, 4, 8, (8, 8)), (3, 3))
    arrays[2] = np.full(8, 100, np.float32)
    graph = pair(bench, arrays, pads=(1,) * 4)
    wanted = expected(bench, arrays, lambda s: s, 1, (1,) * 4, 1)
    compare(run(device, graph, [arrays[0]]), wanted, "float32")
    arrays[0][0, 0, 0, 0] = np.inf
    got = run(device, graph, [arrays[0]])
    assert not np.isfinite(got[..., :2, :2]).any()
    np.testing.assert_allclose(got[..., 2:, :], wanted[..., 2:, :], rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("layout", [0, 1, 2], ids=["plain", "channels innermost", "to channels innermost"])
@pytest.mark.parametrize("case", [(1, (1, 1, 1, 1), 1), (2, (0, 1, 2, 0), 1), (1, (2, 2, 2, 2), 2)], ids=str)
def test_first_convolutions_with_windows(case: Any, layout: int, fenced: Any, bench: Any, rng: Any) -> None:
    """As networks of images begin: 3 channels, depthwise and pointwise convolutions behind; the bias counts inside alone."""
    stride, pads, dilation = case
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in [(2, 3, 11, 14), (13, 3, 3, 3), (13,)])
    deep_w, narrow = (rng.standard_normal(shape).astype(np.float32) for shape in [(13, 1, 3, 3), (6, 13, 1, 1)])
    g = GraphBuilder()
    wide = bench.op("Conv", strides=(stride,) * 2, pads=pads, dilations=(dilation,) * 2)
    first = g.node(wide, g.input("x", "float32", x.shape), g.constant(w), g.constant(b))
    second = g.node(bench.op("Conv", group=13, pads=(1,) * 4), first, g.constant(deep_w))
    graph = fold_constants(g.graph([g.node(bench.op("Conv"), second, g.constant(narrow))]))
    graph = graph.replace(nodes=(dataclasses.replace(graph.nodes[0], post_ops=(CLIP,)), *graph.nodes[1:]))
    made = np.clip(wide.reference(*(a.astype(np.float64) for a in (x, w, b))), 0, 6)
    deep = bench.convolve(made, deep_w.astype(np.float64), 1, (1,) * 4, 13)
    device = chosen(fenced, graph, layout)
    compare(run(device, graph, [x]), bench.convolve(deep, narrow.astype(np.float64), 1, (0,) * 4, 1), "float32")


OTHERS: dict[str, Callable[[Any, list[Any]], Graph]] = {
    "another reader": lambda bench, arrays: pair(bench, arrays, also=["first"], pads=(1,) * 4),
    "not depthwise": lambda bench, arrays: pair(bench, [*arrays[:3], np.repeat(arrays[3], 2, 0), None], pads=(1,) * 4),
    "many products": lambda bench, arrays: pair(
        bench, [arrays[0], np.ones((16, 8, 3, 3), np.float32), *arrays[2:]], pads=(1,) * 4
    ),
    "too large a window": lambda bench, arrays: pair(
        bench, [*arrays[:3], np.ones((16, 1, 9, 9), np.float32), None], pads=(4,) * 4
    ),
}


@pytest.mark.parametrize("which", OTHERS)
def test_other_convolutions_stay_two(which: str, device: Any, bench: Any, rng: Any) -> None:
    graph = OTHERS[which](bench, numbers(rng, "float32", (1, 8, 16, (6, 6)), (3, 3)))
    assert [node.op.op_type for node in device.lower(graph).nodes] == ["Conv", "Conv"]


def test_a_last_convolution_with_strides_stays_apart(fenced: Any, bench: Any, rng: Any) -> None:
    """Also where the node's result is too small to tell, as of a 2 x 2 image with a stride of 2."""
    g, shapes = GraphBuilder(), ((16, 8, 1, 1), (16, 1, 3, 3), (8, 16, 1, 1))
    x = g.input("x", "float32", (1, 8, 2, 2))
    wide, deep, narrow = (g.constant(rng.standard_normal(shape).astype(np.float32)) for shape in shapes)
    result = g.node(bench.op("Conv", group=16, pads=(1,) * 4), g.node(bench.op("Conv"), x, wide), deep)
    graph = fold_constants(g.graph([g.node(bench.op("Conv", strides=(2, 2)), result, narrow)]))
    assert [node.op.op_type for node in fenced.lower(graph).nodes] == ["PointwiseDepthwise", "Conv"]


def test_weights_that_are_inputs(device: Any, bench: Any, rng: Any) -> None:
    x, w, deep_w = rng.standard_normal((1, 8, 6, 6)), rng.standard_normal((16, 8, 1, 1)), rng.standard_normal((16, 1, 3, 3))
    g = GraphBuilder()
    names = [g.input(n, "float32", a.shape) for n, a in zip("xwd", (x, w, deep_w), strict=True)]
    first = g.node(bench.op("Conv"), *names[:2])
    graph = fold_constants(g.graph([g.node(bench.op("Conv", group=16), first, names[2])]))
    assert [node.op.op_type for node in device.lower(graph).nodes] == ["Conv", "Conv"]


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_devices(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """One launch for small images on GPUs; two for large batches, and on CPUs."""
    device = copy.copy(kind_device(kind))
    device.caps = dataclasses.replace(device.caps, compute_units=132, local_memory=48 << 10, max_work_group_size=1024)
    device._bound = {}
    small, large = (numbers(rng, "float32", (batch, 64, 384, (14, 14)), (3, 3)) for batch in (1, 64))
    made = [[node.op.op_type for node in device.lower(pair(bench, a, pads=(1,) * 4)).nodes] for a in (small, large)]
    assert made == [["PointwiseDepthwise"] if kind == "GPU" else ["Conv", "Conv"], ["Conv", "Conv"]]


def test_first_convolutions_of_large_batches_stay_apart(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """A place computed for each element that is loaded costs more than launches: on an H200 49.5 for 44.9 us at batch 8."""
    device, made = copy.copy(kind_device("GPU")), []
    device.caps = dataclasses.replace(device.caps, compute_units=132, local_memory=48 << 10, max_work_group_size=1024)
    device._bound = {}
    for batch in (1, 8):
        shapes = (batch, 3, 224, 224), (32, 3, 3, 3), (32, 1, 3, 3)
        x, w, deep_w = (np.zeros(shape, np.float32) for shape in shapes)
        g = GraphBuilder()
        first = g.node(bench.op("Conv", strides=(2, 2), pads=(1,) * 4), g.input("x", "float32", x.shape), g.constant(w))
        g.node(bench.op("Conv", group=32, pads=(1,) * 4), first, g.constant(deep_w), outputs=["y"])
        made.append(len(device.lower(fold_constants(g.graph(["y"]))).nodes))
    assert made == [1, 2]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("maps", [3, 5])
def test_what_the_cost_model_chooses(maps: int, dtype: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Many GPUs have no tiles for a pointwise convolution to less than four channels, so that no cost can be compared."""
    device, arrays = kind_device("GPU"), numbers(rng, dtype, (1, 16, maps, (7, 9)), (3, 3))
    graph = pair(bench, arrays, pads=(1,) * 4)
    lowered = device.lower(graph)
    has_tiles = {"conv_pipelined", "conv_tiled"} & set(bench.accepted(device, graph, graph.nodes[0]))
    assert has_tiles or len(lowered.nodes) == 2
    (got,) = bench.run(device, lowered, arrays[:1])
    compare(got, expected(bench, arrays, lambda s: s, 1, (1,) * 4, 1), dtype)


def test_reports_name_both_nodes(device: Any, bench: Any, rng: Any) -> None:
    graph = pair(bench, numbers(rng, "float32", (1, 8, 16, (6, 6)), (3, 3)), chains=([CLIP], []), pads=(1,) * 4)
    lowered = device.lower(graph)
    (node,) = lowered.nodes
    assert set(node.origins) == {n.name for n in graph.nodes}
    typed = TypedNode.of(node, lowered)
    assert isinstance(node.op, PointwiseDepthwise)
    assert node.op.flops(typed.inputs, typed.outputs) == sum(n.op.flops(t.inputs, t.outputs) for n, t in _typed(graph))
    accepted = device.supports(typed)
    assert isinstance(accepted, Accepted)
    assert accepted.kernel == "pointwise_depthwise"


def _typed(graph: Graph) -> list[tuple[Node, TypedNode]]:
    return [(node, TypedNode.of(node, graph)) for node in graph.nodes]


def test_tiles_fit_the_device(device: Any, bench: Any, rng: Any) -> None:
    """Local memory and work items bound them; where none fits, two launches remain."""
    lowered = device.lower(pair(bench, numbers(rng, "float32", (1, 96, 576, (14, 14)), (3, 3)), pads=(1,) * 4, strides=(2, 2)))
    node = TypedNode.of(lowered.nodes[0], lowered)
    caps = dataclasses.replace(device.caps, local_memory=48 << 10, max_work_group_size=128)
    kernel = PointwiseDepthwiseTiles().on(caps)
    problem = kernel.problem(node)
    assert problem is not None
    found = list(kernel.possible(problem))
    assert found
    assert all(tile.items <= 128 and 4 * problem.floats(tile, problem.step(tile, 48 << 10)) <= 48 << 10 for tile in found)
    assert kernel.tiling(problem) in found
    refusal = PointwiseDepthwiseTiles().on(dataclasses.replace(caps, local_memory=256)).supports(node)
    assert isinstance(refusal, Refusal)
    assert "local memory" in str(refusal)
