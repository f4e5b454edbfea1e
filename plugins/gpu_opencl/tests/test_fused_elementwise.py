"""Elementwise nodes that only each other read as one launch, and reductions that compute what they read."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DType, Eltwise, Graph, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.op import NHWC
from dovetail.passes.layout import assign_layouts

pytestmark = pytest.mark.exhaustive(0.25)  # each test compiles programs

Open = Callable[[str], Any]


class Drawing:
    """A graph by names of operators, beside its results in float64."""

    def __init__(self, bench: Any, rng: Any) -> None:
        self.bench, self.rng, self.g = bench, rng, GraphBuilder()
        self.feeds: list[Any] = []
        self.values: dict[str, Any] = {}

    def input(self, *dims: int, dtype: str = "float32") -> str:
        x = self.rng.standard_normal(dims).astype(dtype) if dtype.startswith("f") else self.rng.integers(0, 5, dims).astype(dtype)
        name = self.g.input(f"x{len(self.feeds)}", dtype, dims)
        self.feeds.append(x)
        self.values[name] = x.astype(np.float64) if dtype.startswith("f") else x
        return str(name)

    def node(self, op: str, value: Any, *names: str, **more: Any) -> str:
        post_ops = more.pop("post_ops", ())
        name = self.g.node(self.bench.op(op, **more), *names, post_ops=post_ops)
        self.values[name] = value
        return str(name)

    def mul(self, a: str, b: str) -> str:
        return self.node("Mul", self.values[a] * self.values[b], a, b)

    def add(self, a: str, b: str) -> str:
        return self.node("Add", self.values[a] + self.values[b], a, b)

    def graph(self, *outputs: str) -> Graph:
        graph: Graph = self.bench.typed(self.g.graph(list(outputs)))
        return graph

    def check(self, device: Any, kinds: Sequence[str], *outputs: str, rtol: float = 1e-5) -> Graph:
        graph = device.lower(self.graph(*outputs))
        assert [node.op.op_type for node in graph.nodes] == list(kinds)
        for name, found in zip(outputs, self.bench.run(device, graph, self.feeds), strict=True):
            np.testing.assert_allclose(found, self.values[name], rtol=rtol, atol=rtol)
        return graph


@pytest.fixture
def drawing(bench: Any, rng: Any) -> Drawing:
    return Drawing(bench, rng)


@pytest.mark.parametrize("dims", [(3, 5, 7), (2, 1, 1), (1, 300), (4, 3, 5, 6)])
def test_a_sum_of_products_is_one_launch(dims: tuple[int, ...], kind_device: Open, drawing: Drawing) -> None:
    d, per_row = drawing, (*dims[:-1], 1)
    a, b, c, s = d.input(*dims), d.input(*dims), d.input(*dims[1:]), d.input(*per_row)
    y = d.add(d.mul(a, s), d.add(d.mul(b, c), d.mul(a, b)))
    graph = d.check(kind_device("GPU"), ["FusedElementwise"], y)
    assert len(graph.nodes[0].origins) == 5
    assert [node.op.op_type for node in kind_device("CPU").lower(d.graph(y)).nodes] == ["Mul", "Mul", "Mul", "Add", "Add"]


def test_with_channels_innermost(kind_device: Open, drawing: Drawing, bench: Any) -> None:
    d, device, dims = drawing, kind_device("GPU"), (2, 12, 3, 5)
    a, b, s, t = d.input(*dims), d.input(*dims), d.input(1, 12, 1, 1), d.input(2, 1, 3, 5)
    y = d.add(d.mul(a, s), d.mul(b, t))
    graph = device.lower(d.graph(y))
    typed = {name: t.with_layout(NHWC) if t.dims == dims else t for name, t in graph.types.items()}
    feeds = [x if x.shape != dims else np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(dims) for x in d.feeds]
    (found,) = bench.run(device, graph.replace(types=typed), feeds)
    np.testing.assert_allclose(found.reshape(2, 3, 5, 12).transpose(0, 3, 1, 2), d.values[y], rtol=1e-5, atol=1e-5)


def test_values_behind_views_are_part_of_it(kind_device: Open, drawing: Drawing) -> None:
    """Rows and columns, each made of two values, meet in an outer product; an axis in the middle comes and goes."""
    d = drawing
    a, b, c, e = d.input(4, 6), d.input(1, 6), d.input(4, 9), d.input(4, 1, 9)
    rows = d.node("Unsqueeze", (d.values[a] * d.values[b])[..., None], d.mul(a, b), d.g.constant([2], "int64"))
    wide = d.add(d.node("Reshape", d.values[c][:, None], c, d.g.constant([4, 1, 9], "int64")), e)
    y = d.mul(rows, wide)
    d.check(kind_device("GPU"), ["Reshape", "FusedElementwise"], y)


def test_other_types_and_chains(kind_device: Open, drawing: Drawing) -> None:
    """Comparisons, integers, a choice; post-ops of inner nodes with operands of both kinds."""
    d, device = drawing, kind_device("GPU")
    a, b, i, j = d.input(5, 7), d.input(5, 7), d.input(5, 7, dtype="int32"), d.input(7, dtype="int32")
    left, right = d.values[a], d.values[b]
    less = d.node("Less", d.values[i] < d.values[j] * 2, i, d.add(j, j))
    steps = [Binary("mul", b), Eltwise("linear", 2.0, 1.0)]
    c = d.node("Add", (left + right) * right * 2 + 1, a, b, post_ops=steps)
    y = d.node("Where", np.where(d.values[less], d.values[c], left), less, c, a)
    d.check(device, ["FusedElementwise"], y)


def test_halves_are_kept_in_float_between_nodes(kind_device: Open, drawing: Drawing, bench: Any) -> None:
    """Their squares do not fit, the difference of these does; but a Cast rounds."""
    d, device = drawing, kind_device("GPU")
    a, b = d.input(40, dtype="float16"), d.input(40, dtype="float16")
    d.feeds = [(x + 300).astype(np.float16) for x in d.feeds]
    wide = [x.astype(np.float64) for x in d.feeds]
    y = d.node("Sub", None, d.mul(a, a), d.mul(b, b))
    (found,) = bench.run(device, device.lower(d.graph(y)), d.feeds)
    np.testing.assert_allclose(found, (wide[0] ** 2 - wide[1] ** 2).astype(np.float16), rtol=2e-3, atol=0.6)
    other = Drawing(bench, d.rng)
    x = other.input(40)
    back = other.node("Cast", None, other.node("Cast", None, other.mul(x, x), to=10), to=1)
    z = other.node("Sub", None, back, x)
    graph = device.lower(other.graph(z))
    (found,) = bench.run(device, graph, other.feeds)
    rounded = (other.feeds[0] * other.feeds[0]).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found, rounded - other.feeds[0])


def test_what_others_read_stays_apart(kind_device: Open, drawing: Drawing) -> None:
    """An output; a value that a product reads, too; a large result that would compute what broadcasts again and again."""
    d, device = drawing, kind_device("GPU")
    a, b = d.input(6, 6), d.input(6, 6)
    product = d.mul(a, b)
    y = d.add(d.mul(product, a), d.mul(b, b))
    d.check(device, ["Mul", "FusedElementwise"], product, y)
    g = GraphBuilder()
    rows, x = g.input("rows", "float32", (2048, 1)), g.input("x", "float32", (2048, 2048))
    made = g.node(d.bench.op("Mul"), rows, g.node(d.bench.op("Exp"), rows))
    z = g.node(d.bench.op("Add"), x, made)
    kinds = [node.op.op_type for node in device.lower(d.bench.typed(g.graph([z]))).nodes]
    assert kinds == ["FusedElementwise", "Add"]


@pytest.mark.parametrize("axes", [(1,), (0, 2), (2,), ()])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceLogSumExp", "ReduceMax"])
@pytest.mark.parametrize("dims", [(3, 5, 7), (2, 3, 150), (1, 1, 1)])
def test_reductions_compute_what_they_read(
    op: str, axes: tuple[int, ...], dims: tuple[int, ...], kind_device: Open, drawing: Drawing
) -> None:
    d = drawing
    a, b, s = d.input(*dims), d.input(*dims), d.input(dims[0], 1, 1)
    product = d.values[a] * d.values[s] - d.values[b]
    axis = axes or None
    functions = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max}
    wanted = np.log(np.sum(np.exp(product), axis, keepdims=True))
    if op in functions:
        wanted = functions[op](product, axis, keepdims=True)
    difference = d.node("Sub", product, d.mul(a, s), b)
    names = [d.g.constant(list(axes), "int64")] if axes else []
    y = d.node(op, np.maximum(wanted, 0), difference, *names, post_ops=[Eltwise("relu")])
    d.check(kind_device("GPU"), ["FusedElementwise"], y)


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_running_sums_compute_what_they_read(op: str, exclusive: int, reverse: int, kind_device: Open, drawing: Drawing) -> None:
    d = drawing
    a, s = d.input(4, 6, 5), d.input(1, 6, 1)
    values = d.values[a] * d.values[s] + d.values[a]
    found = np.flip(values, 1) if reverse else values
    found = np.cumsum(found, 1) if op == "CumSum" else np.cumprod(found, 1)
    if exclusive:
        first = np.full_like(found[:, :1], op == "CumProd")
        found = np.concatenate([first, found[:, :-1]], 1)
    wanted = np.flip(found, 1) if reverse else found
    total = d.node("Add", values, d.mul(a, s), a)
    y = d.node(op, wanted, total, d.g.constant(1, "int32"), version=26, exclusive=exclusive, reverse=reverse)
    d.check(kind_device("GPU"), ["FusedElementwise"], y)


def test_a_running_sum_along_an_axis_known_later_reads_memory(kind_device: Open, drawing: Drawing) -> None:
    d = drawing
    a, axis = d.input(4, 6), d.g.input("axis", "int32", ())
    y = d.g.node(d.bench.op("CumSum"), d.mul(a, a), axis)
    assert [n.op.op_type for n in kind_device("GPU").lower(d.graph(y)).nodes] == ["Mul", "CumSum"]


def test_halves_beside_float32(kind_device: Open, drawing: Drawing, bench: Any) -> None:
    """With the hint f16 a sum of float32 reads halves."""
    d, device = drawing, kind_device("GPU")
    a, b = d.input(3, 70, dtype="float16"), d.input(3, 70, dtype="float16")
    y = d.g.node(bench.op("ReduceSum"), d.mul(a, b), d.g.constant([1], "int64"))
    graph = d.graph(y)
    graph = graph.replace(types={**graph.types, y: TensorType(DType.FLOAT32, (3, 1))})
    lowered = device.lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["FusedElementwise"]
    (found,) = bench.run(device, lowered, d.feeds)
    np.testing.assert_allclose(found, np.sum(d.values[a] * d.values[b], 1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_one_program_serves_other_sizes(kind_device: Open, bench: Any, rng: Any) -> None:
    device, sources = kind_device("GPU"), set()
    for rows, columns in ((3, 14), (5, 22)):
        d = Drawing(bench, rng)
        a, s = d.input(rows, columns), d.input(rows, 1)
        graph = device.lower(d.graph(d.add(d.mul(a, s), d.mul(a, a))))
        executable = device.compile(assign_layouts(graph, device.configurations), {})
        sources |= {command.launch.source for command in executable.commands}
    assert len(sources) == 1


def test_the_result_may_take_the_memory_of_what_is_read_at_its_element(kind_device: Open, drawing: Drawing) -> None:
    d, device = drawing, kind_device("GPU")
    a, b, s = d.input(6, 6), d.input(6, 6), d.input(6)
    (node,) = device.lower(d.graph(d.add(d.mul(a, s), d.mul(b, b)))).nodes
    types = {
        "x0": TensorType(DType.FLOAT32, (6, 6)),
        "x1": TensorType(DType.FLOAT32, (6, 6)),
        "x2": TensorType(DType.FLOAT32, (6,)),
    }
    graph = Graph((node,), tuple(types), node.outputs, {}, {**types, node.outputs[0]: types["x0"]})
    kernel = device._kernel_of(TypedNode.of(node, graph))
    assert sorted(kernel.in_place(TypedNode.of(node, graph))) == ["x0", "x1"]


_UNARY = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Neg": np.negative,
    "Exp": lambda x: np.exp(x),
    "Abs": np.abs,
}
_BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions(seed: int, kind_device: Open, bench: Any) -> None:
    """Of values of several shapes, some behind views, some read twice, some results of the graph."""
    rng = np.random.default_rng(seed)
    d, dims = Drawing(bench, rng), tuple(int(n) for n in rng.integers(1, 6, 3))
    shapes = [dims, dims, (*dims[:2], 1), (1, *dims[1:]), dims[2:], (1, 1, 1)]
    names = [d.input(*shapes[int(rng.integers(len(shapes)))]) for _ in range(4)] + [d.input(*dims)]
    for _ in range(int(rng.integers(4, 11))):
        x, y = (names[-1 - int(rng.integers(min(5, len(names))))] for _ in range(2))
        kind = int(rng.integers(6))
        if kind == 0:
            op = [*_UNARY][int(rng.integers(len(_UNARY)))]
            small = d.node("Tanh", np.tanh(d.values[x]), x)
            names.append(d.node(op, _UNARY[op](d.values[small]), small))
        elif kind == 1:
            found = d.values[x]
            shape = (1, *found.shape) if found.ndim < 3 else (*found.shape[:1], 1, *found.shape[1:])
            shape = shape if len(shape) < 4 or found.shape[0] > 1 else found.shape[1:]
            names.append(d.node("Reshape", found.reshape(shape), x, d.g.constant(list(shape), "int64")))
        else:
            op = [*_BINARY][int(rng.integers(len(_BINARY)))]
            names.append(d.node(op, _BINARY[op](d.values[x], d.values[y]), x, y))
    last = d.add(names[-1], names[-2])
    outputs = [last, names[-2]] if seed % 3 == 0 and names[-2] not in names[:5] else [last]
    device = kind_device("GPU")
    for name, found in zip(outputs, bench.run(device, device.lower(d.graph(*outputs)), d.feeds), strict=True):
        np.testing.assert_allclose(found, d.values[name], rtol=2e-5, atol=2e-5)
