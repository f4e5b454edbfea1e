"""Nodes that only move elements in one launch: index maps that are composed, and the graphs in which they are."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Convert, DType, Graph, Node, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.op import NHWC, PLAIN
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._composed_moves import composed, whole
from dovetail_gpu_opencl.kernels._copy import Move
from dovetail_gpu_opencl.kernels._fused_elementwise import FusedElementwise
from dovetail_gpu_opencl.kernels._moved_operands import MovedOperands
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.depth_to_space import DepthToSpace
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.transpose import Transpose

pytestmark = pytest.mark.exhaustive(0.3)  # each test compiles programs

Array = np.ndarray[Any, Any]
Open = Callable[[str], Any]


def moved(move: Move, x: Array, size: int) -> Array:
    """The array that a move writes, with -1 elsewhere."""
    result = np.full(size, -1)
    places = np.indices(move.dims).reshape(len(move.dims), -1)
    result[move.dst_offset + np.asarray(move.dst_strides) @ places] = x[move.src_offset + np.asarray(move.src_strides) @ places]
    return result


def random_step(x: Array, rng: np.random.Generator) -> tuple[Array, Move]:
    """A transpose, slice, other shape, repetition or place in a larger array of x, and the move that makes it."""
    dims, steps, axis = x.shape, strides_of(x.shape), int(rng.integers(x.ndim))
    match int(rng.integers(5)):
        case 0:
            order = tuple(rng.permutation(x.ndim).tolist())
            result = x.transpose(order)
            return result, Move("x", "y", result.shape, tuple(steps[a] for a in order), strides_of(result.shape))
        case 1:
            step = int(rng.choice([1, 1, 2, -1]))
            places = np.arange(dims[axis])[int(rng.integers(dims[axis])) :: step]
            result = x.take(places, axis)
            strides = tuple(s * step if a == axis else s for a, s in enumerate(steps))
            return result, Move("x", "y", result.shape, strides, strides_of(result.shape), int(places[0]) * steps[axis])
        case 2:
            first = math.gcd(x.size, int(rng.integers(1, 60)))
            return x.reshape(first, -1), whole("x", "y", x.size)
        case 3:
            result = np.broadcast_to(x, (3, *dims))
            return result, Move("x", "y", result.shape, (0, *steps), strides_of(result.shape))
        case _:
            before, after = rng.integers(3, size=2).tolist()
            result = np.pad(x, [(before, after) if a == axis else (0, 0) for a in range(x.ndim)], constant_values=-1)
            wide = strides_of(result.shape)
            return result, Move("x", "y", dims, steps, wide, 0, before * wide[axis])


def test_composed_moves_are_both() -> None:
    rng, known = np.random.default_rng(11), 0
    for _ in range(600):
        x = np.arange(int(rng.integers(1, 7))).reshape(1, -1)
        x = np.arange(math.prod(shape := tuple(rng.integers(1, 7, int(rng.integers(1, 5))).tolist()))).reshape(shape)
        start, found = x.reshape(-1), whole("x", "y", x.size)
        for _ in range(int(rng.integers(1, 5))):
            x, step = random_step(x, rng)
            both = composed(found, step)
            if both is None:
                break
            found = both
        else:
            known += 1
            np.testing.assert_array_equal(moved(found, start, x.size), x.reshape(-1))
    assert known > 500


def test_boxes_that_do_not_fit() -> None:
    """Nine elements in rows of three, of which five from the second one on are read: no box."""
    rows = Move("x", "y", (3, 3), (1, 3), (3, 1))
    assert composed(rows, Move("y", "z", (5,), (1,), (1,), 1)) is None
    assert composed(rows, Move("y", "z", (3,), (1,), (1,), 3)) == Move("x", "z", (3,), (3,), (1,), 1)


def shuffled(g: GraphBuilder, a: str, b: str, channels: int, pixels: tuple[int, int]) -> tuple[str, ...]:
    """ShuffleNet's: the channels of both in turns, then two halves of them."""
    joined = g.node(Concat(axis=1), a, b)
    apart = g.node(Reshape(), joined, g.constant(np.array([0, 2, channels, *pixels])))
    turned = g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1, 3, 4)), apart), g.constant(np.array([0, 2 * channels, *pixels])))
    return tuple(g.node(Split(axis=1, num_outputs=2), turned, outputs=["low", "high"]))


def run_lowered(
    device: Any, bench: Any, graph: Graph, feeds: Sequence[Array], count: int, layouts: Sequence[Any] = ()
) -> list[Array]:
    """The results of a graph of which the device makes one node of so many launches, with inputs and outputs in `layouts`."""
    lowered = device.lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["JoinedMoves"]
    names = (*graph.inputs, *graph.outputs)
    given = dict(zip(names, layouts or (PLAIN,) * len(names), strict=True))
    lowered = lowered.replace(types={n: t.with_layout(given[n]) if n in given else t for n, t in lowered.types.items()})
    node = TypedNode.of(lowered.nodes[0], lowered)
    kernel = next(kernel for kernel in device.kernels(node) if kernel.supports(node))
    assert len(kernel.launches(node)) == count
    stored = [x.transpose(given[n].order(x.ndim)) for n, x in zip(graph.inputs, feeds, strict=True)]
    arrays = [np.ascontiguousarray(x).reshape(one.shape) for x, one in zip(stored, feeds, strict=True)]
    found = bench.run(device, lowered, arrays)
    results = []
    for name, y in zip(graph.outputs, found, strict=True):
        order = given[name].order(y.ndim)
        results.append(y.reshape([y.shape[d] for d in order]).transpose(np.argsort(order)))
    return results


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64"])
@pytest.mark.parametrize("channels", [6, 8])
def test_a_shuffle_of_channels_is_one_launch(kind_device: Open, bench: Any, channels: int, dtype: str) -> None:
    rng = np.random.default_rng(channels)
    a, b = (rng.integers(0, 200, (2, channels, 3, 5)).astype(dtype) for _ in range(2))
    whole_ = np.stack([a, b], 2).reshape(2, 2 * channels, 3, 5)
    for layouts in itertools.product((PLAIN, NHWC), repeat=4):
        g = GraphBuilder()
        low, high = shuffled(g, g.input("a", dtype, a.shape), g.input("b", dtype, b.shape), channels, (3, 5))
        found = run_lowered(kind_device("GPU"), bench, bench.typed(g.graph([low, high])), [a, b], 1, layouts)
        np.testing.assert_array_equal(np.concatenate(found, 1), whole_)


def test_halves_that_end_between_two_sources(kind_device: Open, bench: Any) -> None:
    """Halves of an odd number of channels have different numbers of both: no boxes, so that the Split stays a node."""
    a, b = (np.random.default_rng(i).standard_normal((1, 3, 2, 2)).astype(np.float32) for i in range(2))
    g = GraphBuilder()
    graph = bench.typed(g.graph(shuffled(g, g.input("a", "float32", a.shape), g.input("b", "float32", b.shape), 3, (2, 2))))
    lowered = kind_device("GPU").lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["JoinedMoves", "Split"]
    found = bench.run(kind_device("GPU"), lowered, [a, b])
    np.testing.assert_array_equal(np.concatenate(found, 1), np.stack([a, b], 2).reshape(1, 6, 2, 2))


def test_layouts_of_a_shuffle(kind_device: Open, bench: Any) -> None:
    """Each value has one of its own, so that no reorder is needed before or behind."""
    g = GraphBuilder()
    low, high = shuffled(g, g.input("a", "float32", (1, 4, 6, 6)), g.input("b", "float32", (1, 4, 6, 6)), 4, (6, 6))
    device = kind_device("GPU")
    lowered = device.lower(bench.typed(g.graph([low, high])))
    configs = device.configurations(TypedNode.of(lowered.nodes[0], lowered))
    assert len({(*config.inputs[:2], *config.outputs) for config in configs}) == 16


@pytest.mark.parametrize("to", [DType.FLOAT16, DType.BFLOAT16])
def test_caches_that_are_converted_and_joined(kind_device: Open, bench: Any, to: DType) -> None:
    """A row of keys, columns of one product, behind those of one layer of all caches."""
    rng = np.random.default_rng(4)
    caches, new = rng.standard_normal((3, 2, 5, 6)).astype(np.float32), rng.standard_normal((1, 36)).astype(np.float32)
    g = GraphBuilder()
    x = g.input("new", "float32", new.shape)
    row = g.node(Convert(to=to), x)
    layer = g.node(Convert(to=to), g.node(Gather(axis=0), g.input("caches", "float32", caches.shape), g.constant(np.int64(-2))))
    names = []
    for first in (0, 12, 24):
        part = g.node(Slice(), row, *(g.constant([n], "int64") for n in (first, first + 12, 1)))
        names.append(g.node(Reshape(), part, g.constant(np.array([2, 1, 6]))))
    y = g.node(Concat(axis=1), layer, names[1])
    graph = bench.typed(g.graph([names[0], y]))
    feeds = [{"new": new, "caches": caches}[name] for name in graph.inputs]
    query, keys = run_lowered(kind_device("GPU"), bench, graph, feeds, 1)
    np.testing.assert_array_equal(query, new[:, :12].reshape(2, 1, 6).astype(to.numpy))
    np.testing.assert_array_equal(keys, np.concatenate([caches[1], new[:, 12:24].reshape(2, 1, 6)], 1).astype(to.numpy))


def test_what_is_converted_twice_is_rounded_twice(kind_device: Open, bench: Any) -> None:
    x = np.array([[1 + 2**-12, 70000.0, 3.0, 1e-9]], np.float32)
    g = GraphBuilder()
    half = g.node(Convert(to=DType.FLOAT16), g.node(Transpose(perm=(1, 0)), g.input("x", "float32", x.shape)))
    y = g.node(Reshape(), g.node(Convert(to=DType.FLOAT32), half), g.constant(np.array([2, 2])))
    z = g.node(Concat(axis=0), y, y)
    device, graph = kind_device("GPU"), bench.typed(g.graph([z]))
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32).reshape(2, 2)
    for one in (graph, device.lower(graph)):
        np.testing.assert_array_equal(bench.run(device, one, [x])[0], np.concatenate([expected, expected]))


def test_values_that_others_read_stay(kind_device: Open, bench: Any) -> None:
    """Values that are read between the moves are written, too; views of them stay, and later ones are another launch."""
    x = np.random.default_rng(9).standard_normal((2, 3, 4)).astype(np.float32)
    g = GraphBuilder()
    turned = g.node(Transpose(perm=(2, 0, 1)), g.input("x", "float32", x.shape), outputs=["turned"])
    flat = g.node(Reshape(), turned, g.constant(np.array([4, 6])), outputs=["flat"])
    part = g.node(Slice(), flat, *(g.constant([n], "int64") for n in (5, -7, 1, -1)), outputs=["part"])
    late = g.node(Concat(axis=1), part, g.node(Relu(), part), outputs=["late"])
    graph = bench.typed(g.graph([turned, flat, late]))
    device = kind_device("GPU")
    lowered = device.lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["JoinedMoves", "Reshape", "Relu", "JoinedMoves"]
    expected = x.transpose(2, 0, 1), x.transpose(2, 0, 1).reshape(4, 6)
    reverse = expected[1][:, ::-1]
    found = bench.run(device, lowered, [x])
    for one, wanted in zip(found, (*expected, np.concatenate([reverse, np.maximum(reverse, 0)], 1)), strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_repetitions_and_blocks(kind_device: Open, bench: Any) -> None:
    x = np.random.default_rng(2).standard_normal((1, 8, 2, 3)).astype(np.float16)
    g = GraphBuilder()
    twice = g.node(Expand(), g.input("x", "float16", x.shape), g.constant(np.array([2, 8, 2, 3])))
    wide = g.node(DepthToSpace(blocksize=2), twice)
    y = g.node(Gather(axis=1), wide, g.constant(np.array([1])))
    expected = np.repeat(x, 2, 0).reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6)[:, 1:]
    (found,) = run_lowered(kind_device("GPU"), bench, bench.typed(g.graph([y])), [x], 1)
    np.testing.assert_array_equal(found, expected)


def test_many_parts_stay(kind_device: Open, bench: Any) -> None:
    """A join of more values than a launch gains from, and CPUs, which move runs of elements."""
    g = GraphBuilder()
    parts = [g.node(Transpose(perm=(1, 0)), g.input(f"x{i}", "float32", (3, 5))) for i in range(5)]
    graph = bench.typed(g.graph([g.node(Concat(axis=0), *parts)]))
    assert [node.op.op_type for node in kind_device("GPU").lower(graph).nodes] == ["JoinedMoves", "Concat"]
    assert "JoinedMoves" not in {node.op.op_type for node in kind_device("CPU").lower(graph).nodes}
    arrays = [np.random.default_rng(i).standard_normal((3, 5)).astype(np.float32) for i in range(5)]
    (found,) = bench.run(kind_device("GPU"), kind_device("GPU").lower(graph), arrays)
    np.testing.assert_array_equal(found, np.concatenate([x.T for x in arrays]))


def test_other_sizes_take_the_nodes_over(kind_device: Open, bench: Any) -> None:
    """The moves are those of the sizes that the node has, not of those that it was made for."""
    g = GraphBuilder()
    a, b = (g.input(name, "float32", (2, 4, 3, 5)) for name in "ab")
    graph = bench.typed(g.graph(shuffled(g, a, b, 4, (3, 5))))
    device = kind_device("GPU")
    (node,) = device.lower(graph).nodes
    types = {name: t if t.value is not None else t.with_shape((7, *t.dims[1:])) for name, t in graph.types.items()}
    results = node.op.infer(*(types.get(name) for name in node.inputs))
    assert [t.dims for t in results] == [(7, 4, 3, 5)] * 2
    resized = TypedNode(node, tuple(types[name] for name in node.inputs), results)
    kernel = next(kernel for kernel in device.kernels(resized) if kernel.supports(resized))
    assert sum(math.prod(move.dims) for move in kernel.moves(resized)) == 2 * 7 * 4 * 15


def grown(g: GraphBuilder, x: str, rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> None:
    """Adds an operator over x, and the shapes of what it gives."""
    dims = shapes[x]
    axis, size = (at := int(rng.integers(len(dims)))), dims[at]
    match int(rng.integers(6)):
        case 0:
            perm = tuple(rng.permutation(len(dims)).tolist())
            shapes[g.node(Transpose(perm=perm), x)] = tuple(dims[a] for a in perm)
        case 1:
            first = int(rng.integers(size))
            name = g.node(Slice(), x, *(g.constant([n], "int64") for n in (first, size, axis, 1)))
            shapes[name] = (*dims[:axis], size - first, *dims[axis + 1 :])
        case 2:
            shape = (math.gcd(math.prod(dims), 12), math.prod(dims) // math.gcd(math.prod(dims), 12))
            shapes[g.node(Reshape(), x, g.constant(np.array(shape)))] = shape
        case 3:
            alike = [n for n, d in shapes.items() if d == dims]
            names = [x, *rng.choice(alike, int(rng.integers(1, 3))).tolist()]
            shapes[g.node(Concat(axis=axis), *names)] = (*dims[:axis], size * len(names), *dims[axis + 1 :])
        case 4:
            index = g.constant(np.array([int(rng.integers(-size, size))]))
            shapes[g.node(Gather(axis=axis), x, index)] = (*dims[:axis], 1, *dims[axis + 1 :])
        case _:
            shapes[g.node(Relu(), x)] = dims


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_in_order(kind_device: Open, bench: Any, seed: int) -> None:
    """Merged nodes read only what is made before them, and move what the nodes would; in NumPy, without a compilation."""
    device, joined = kind_device("GPU"), 0
    for number in range(40):
        rng = np.random.default_rng([seed, number])
        g, feeds, shapes = GraphBuilder(), dict[str, Array](), dict[str, tuple[int, ...]]()
        for i in range(int(rng.integers(1, 4))):
            shape = tuple(rng.choice([1, 2, 3, 4, 6], int(rng.integers(2, 5))).tolist())
            name = g.input(f"x{i}", "float32", shape)
            feeds[name], shapes[name] = rng.standard_normal(shape).astype(np.float32), shape
        for _ in range(int(rng.integers(3, 12))):
            grown(g, str(rng.choice([*shapes][-4:])), rng, shapes)
        made = [name for name in shapes if name not in feeds]
        graph = bench.typed(g.graph(list(dict.fromkeys([made[-1], *rng.choice(made, 2).tolist()]))))
        lowered = device.lower(graph)
        joined += sum(node.op.op_type == "JoinedMoves" for node in lowered.nodes)
        for one, wanted in zip(computed(device, lowered, feeds), computed(device, graph, feeds), strict=True):
            np.testing.assert_array_equal(one, wanted)
    assert joined > 20


def apart(node: Node) -> Sequence[Node]:
    """The nodes that a merged one stands for, if these are not moves alone."""
    if isinstance(node.op, MovedOperands):
        return (*node.op.moves.nodes, node.op.node)
    return [one.node for one in node.op.nodes] if isinstance(node.op, FusedElementwise) else [node]


def computed(device: Any, graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """The outputs of a graph by references, and by the moves of merged nodes that are nothing else."""
    known: dict[str, Any] = {**graph.constants, **feeds, "": None}
    for node in itertools.chain.from_iterable(map(apart, graph.nodes)):
        if node.op.op_type != "JoinedMoves":
            found = node.op.reference(*(known[name] for name in node.inputs))
            results = dict(zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=True))
            known |= {name: array.reshape(graph.types[name].dims) for name, array in results.items()}
            continue
        typed = TypedNode.of(node, graph)
        kernel = next(kernel for kernel in device.kernels(typed) if kernel.supports(typed))
        moved = {name: np.full(t.size, np.nan, t.dtype.numpy) for name, t in zip(node.outputs, typed.outputs, strict=True)}
        sources = {name: known[name].reshape(-1) for name in node.inputs}
        for move in kernel.moves(typed):
            places = np.indices(move.dims).reshape(len(move.dims), -1)
            source = sources[move.src][move.src_offset + np.asarray(move.src_strides) @ places]
            moved[move.dst][move.dst_offset + np.asarray(move.dst_strides) @ places] = source
        known.update((name, moved[name].reshape(graph.types[name].dims)) for name in node.outputs)
    return [known[name] for name in graph.outputs]
