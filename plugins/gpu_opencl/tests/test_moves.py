"""Operators that move, with post-ops on GPUs, and slices of one value in one launch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DType, Eltwise, TypedNode
from dovetail.graph import Graph, GraphBuilder
from dovetail.op import NHWC
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.transpose import Transpose

pytestmark = pytest.mark.exhaustive(0.3)  # each test compiles programs

Array = np.ndarray[Any, Any]
Open = Callable[[str], Any]


def launches(device: Any, graph: Graph) -> Any:
    """Those of a graph's only node."""
    node = TypedNode.of(graph.nodes[0], graph)
    return next(kernel for kernel in device.kernels(node) if kernel.supports(node)).launches(node)


def gathered(
    indices: Any, axis: int, chain: bool, dtype: str = "float32", open_indices: bool = False
) -> tuple[Graph, list[Array], Array]:
    rng = np.random.default_rng(5)
    x, at = rng.standard_normal((3, 7, 5)).astype(dtype), np.asarray(indices)
    expected = np.take(x.astype(np.float64), at, axis)
    rest, row = rng.standard_normal(expected.shape).astype(dtype), rng.standard_normal(expected.shape[-1:]).astype(dtype)
    g = GraphBuilder()
    names = [g.input("x", dtype, x.shape), g.input("at", str(at.dtype), at.shape) if open_indices else g.constant(at)]
    feeds = [x, at] if open_indices else [x]
    post_ops: tuple[Any, ...] = ()
    if chain:
        post_ops = (Binary("add", g.input("rest", dtype, rest.shape)), Binary("mul", g.constant(row)), Eltwise("relu"))
        expected = np.maximum((expected + rest) * row, 0)
        feeds.append(rest)
    y = g.node(Gather(axis=axis), *names, name="node", post_ops=post_ops)
    return g.graph([y]), feeds, expected


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize(("indices", "axis"), [([[2, 0], [-1, 1]], 0), ([6, -7, 3], 1), (np.int32(4), 2)])
def test_constant_indices(kind_device: Open, bench: Any, indices: Any, axis: int, chain: bool, dtype: str) -> None:
    graph, feeds, expected = gathered(indices, axis, chain, dtype)
    graph, device = bench.typed(graph), kind_device("GPU")
    (found,) = bench.run(device, graph, feeds)
    np.testing.assert_allclose(
        found, expected, rtol=1e-6 if dtype == "float32" else 2e-3, atol=1e-6 if dtype == "float32" else 2e-3
    )
    (launch,) = launches(device, graph)
    assert "Fault" not in {type(argument).__name__ for argument in launch.arguments}


def test_open_indices_are_checked(kind_device: Open, bench: Any) -> None:
    fused = bench.typed(gathered([[2, 0], [-1, 1]], 0, True, open_indices=True)[0])
    assert bench.accepted(kind_device("GPU"), fused, fused.nodes[0]) == []
    graph, feeds, expected = gathered([[2, 0], [-1, 1]], 0, False, open_indices=True)
    (found,) = bench.run(kind_device("GPU"), bench.typed(graph), feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    feeds[1] = np.array([[2, 0], [3, 1]])
    with pytest.raises(Exception, match="an index is outside axis 0 of size 3"):
        bench.run(kind_device("GPU"), bench.typed(graph), feeds)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("dims", "perm"), [((2, 3, 4, 5), (0, 2, 1, 3)), ((3, 5, 7), (2, 1, 0)), ((2, 3, 2, 3, 8), (0, 1, 3, 2, 4))]
)
def test_transposes(kind_device: Open, bench: Any, dims: tuple[int, ...], perm: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal(dims).astype(dtype)
    expected = x.transpose(perm).astype(np.float64)
    rest = rng.standard_normal(expected.shape).astype(dtype)
    g = GraphBuilder()
    chain = (Binary("add", g.input("rest", dtype, rest.shape)), Eltwise("relu"))
    y = g.node(Transpose(perm=perm), g.input("x", dtype, dims), name="node", post_ops=chain)
    graph = bench.typed(g.graph([y]))
    feeds = [{"x": x, "rest": rest}[name] for name in graph.inputs]
    (found,) = bench.run(kind_device("GPU"), graph, feeds)
    np.testing.assert_allclose(found, np.maximum(expected + rest, 0), rtol=1e-6 if dtype == "float32" else 2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("kind", "perm", "dtype"),
    [
        ("CPU", (0, 2, 1, 3), "float32"),
        ("GPU", (0, 2, 3, 1), "float32"),
        ("GPU", (0, 3, 1, 2), "float32"),
        ("GPU", (0, 2, 1, 3), "float64"),
    ],
)
def test_transposes_that_take_none(kind_device: Open, bench: Any, kind: str, perm: tuple[int, ...], dtype: str) -> None:
    """On CPUs, where channels only get another layout, and of numbers that not every GPU computes with."""
    g = GraphBuilder()
    y = g.node(Transpose(perm=perm), g.input("x", dtype, (2, 3, 4, 5)), name="node", post_ops=(Eltwise("relu"),))
    graph = bench.typed(g.graph([y]))
    assert bench.accepted(kind_device(kind), graph, graph.nodes[0]) == []


@pytest.mark.parametrize(
    ("dims", "perm"),
    [
        ((130,), (0,)),
        ((65, 130), (1, 0)),
        ((3, 70, 5), (0, 2, 1)),
        ((2, 3, 67, 66), (0, 2, 3, 1)),
        ((2, 9, 5, 70), (0, 3, 1, 2)),
        ((3, 1, 4, 5, 2), (4, 2, 0, 3, 1)),
        ((0, 4, 5), (2, 1, 0)),
    ],
)
def test_tiles_of_cpus(kind_device: Open, bench: Any, dims: tuple[int, ...], perm: tuple[int, ...]) -> None:
    """Axes in another order, every second element from the end of the last axis, and elements that are repeated along it."""
    device, x = kind_device("CPU"), np.random.default_rng(8).integers(0, 1 << 16, dims).astype(np.uint16)
    last, size = len(dims) - 1, 2 * max(1, dims[-1])
    for op, constants, expected in (
        (Transpose(perm=perm), [], x.transpose(perm)),
        (Slice(), [[-1], [-size], [last], [-2]], x[..., ::-2]),
        (Expand(), [[*dims, 69]], np.broadcast_to(x[..., None], (*dims, 69))),
    ):
        given = x[..., None] if isinstance(op, Expand) else x
        graph, feeds = bench.single(op, [given, *(np.array(c, np.int64) for c in constants)], range(1, 1 + len(constants)))
        found = launches(device, graph)
        assert {launch.file for launch in found} <= {"copy_tiles.cl", "copy_runs.cl"}
        np.testing.assert_array_equal(bench.run(device, graph, feeds, DEBUG_BUFFERS=True)[0], expected)


def test_tiles_of_cpus_are_one_program_for_all_sizes(kind_device: Open, bench: Any) -> None:
    shapes = ((2, 3, 4, 5), (1, 1, 1, 1), (7, 64, 1, 200), (1, 300, 9, 9))
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0)):
        graphs = [bench.single(Transpose(perm=perm), [np.zeros(dims, np.float32)])[0] for dims in shapes]
        assert len({launch.source for graph in graphs for launch in launches(kind_device("CPU"), graph)}) == 1


def slices(bounds: list[tuple[list[int], ...]], dims: tuple[int, ...] = (2, 9, 4, 6)) -> Graph:
    g = GraphBuilder()
    x = g.input("x", "float32", dims)
    outputs = [f"y{i}" for i in range(len(bounds))]
    for name, given in zip(outputs, bounds, strict=True):
        g.node(Slice(), x, *(g.constant(numbers, "int64") for numbers in given), outputs=[name], name=f"slice of {name}")
    return g.graph(outputs)


BOUNDS: list[tuple[list[int], ...]] = [
    ([0], [4], [1]),
    ([4], [100], [1]),
    ([-1], [-10], [1], [-2]),
    ([1, 2], [2, 5]),
    ([5], [5], [1]),
    ([3], [6], [3]),
]


@pytest.mark.parametrize("layout", [None, NHWC])
def test_slices_of_one_value(kind_device: Open, bench: Any, layout: Any) -> None:
    # Every second channel is not a box of channels-last memory.
    bounds = [bound for bound in BOUNDS if layout is None or -2 not in bound[-1]]
    graph, device = bench.typed(slices(bounds)), kind_device("GPU")
    lowered = device.lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["JoinedMoves", "Slice"]  # the Slice has no elements
    joined = lowered.nodes[0]
    results = tuple(graph.types[name] for name in joined.outputs)
    assert joined.op.infer(*(graph.type_of(name) for name in joined.inputs)) == results
    assert len(launches(device, lowered)) == 1
    x = np.random.default_rng(7).standard_normal((2, 9, 4, 6)).astype(np.float32)
    if layout is not None:
        lowered = lowered.replace(
            types={**lowered.types, **{n: lowered.types[n].with_layout(layout) for n in ("x", *graph.outputs)}}
        )
    found = bench.run(device, lowered, [x if layout is None else np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)])
    every_second = [x[:, -1:-10:-2]] if layout is None else []
    wanted = [x[:, :4], x[:, 4:], *every_second, x[1:2, 2:5], x[:, 5:5], x[..., 3:6]]
    for one, expected in zip(found, wanted, strict=True):
        got = one if layout is None else one.reshape(*(expected.shape[i] for i in (0, 2, 3, 1))).transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(got, expected)


def test_slices_that_stay_apart(kind_device: Open, bench: Any) -> None:
    """On CPUs, and alone. Those of two values wait for the later one."""
    graph = bench.typed(slices(BOUNDS[:2]))
    assert {node.op.op_type for node in kind_device("CPU").lower(graph).nodes} == {"Slice"}
    assert {node.op.op_type for node in kind_device("GPU").lower(bench.typed(slices(BOUNDS[:1]))).nodes} == {"Slice"}
    g = GraphBuilder()
    given = [g.constant([n], "int64") for n in (0, 2, 1)]
    a = g.input("a", "float32", (2, 3))
    graph = bench.typed(g.graph([g.node(Slice(), name, *given) for name in (a, g.node(Exp(), a))]))
    assert [node.op.op_type for node in kind_device("GPU").lower(graph).nodes] == ["Exp", "JoinedMoves"]


def test_types_of_post_ops(kind_device: Open, bench: Any) -> None:
    g = GraphBuilder()
    rest = g.input("rest", "float64", (2, 7, 5))
    y = g.node(Gather(), g.input("x", "float32", (3, 7, 5)), g.constant([0, 2]), name="node", post_ops=(Binary("add", rest),))
    graph = bench.typed(g.graph([y]))
    assert graph.types[y].dtype is DType.FLOAT32
    assert bench.accepted(kind_device("GPU"), graph, graph.nodes[0]) == []
