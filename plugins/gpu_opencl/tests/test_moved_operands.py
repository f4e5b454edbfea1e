"""Elementwise nodes that read parts of a value where these are, as gated units do: no launch copies the parts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DType, Eltwise, Graph
from dovetail.graph import GraphBuilder
from dovetail.op import NHWC
from dovetail.passes.layout import assign_layouts
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.transpose import Transpose

pytestmark = pytest.mark.exhaustive(0.25)  # each test compiles programs

Open = Callable[[str], Any]


def gated(
    bench: Any,
    dims: Sequence[int],
    axis: int,
    *,
    sliced: bool = False,
    swapped: bool = False,
    dtype: str = "float32",
    **more: Any,
) -> Graph:
    """One half of x times the sigmoid of the other; `swapped` where the first half is the gate. `more` are names of outputs."""
    g, half = GraphBuilder(), dims[axis] // 2
    x = g.input("x", dtype, tuple(dims))
    if sliced:
        bounds = [[g.constant([n], "int64") for n in (first, first + half, axis)] for first in (0, half)]
        parts = [g.node(Slice(), x, *one, outputs=[f"p{i}"]) for i, one in enumerate(bounds)]
    else:
        parts = g.node(Split(axis=axis, num_outputs=2), x, outputs=["p0", "p1"])
    value, gate = parts[::-1] if swapped else parts
    y = g.node(Sigmoid(), gate, post_ops=[Binary("mul", value), Eltwise("linear", 2.0, 1.0)], outputs=["y"])
    return bench.typed(g.graph([y, *more.get("outputs", ())]))


def kinds(device: Any, graph: Graph) -> list[str]:
    return [node.op.op_type for node in device.lower(graph).nodes]


def _close(found: Any, wanted: Any) -> None:
    half = found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if half else 1e-5, atol=1e-3 if half else 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("sliced", "swapped"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("dims", "axis"), [((3, 5, 14), 2), ((2, 6, 35), 1), ((2, 8, 3, 5), 1), ((6, 5), 0), ((1, 1, 2), 2), ((0, 5, 14), 2)]
)
def test_gated_units_read_both_halves(
    dims: tuple[int, ...], axis: int, sliced: bool, swapped: bool, dtype: str, kind_device: Open, bench: Any, rng: Any
) -> None:
    device, graph = kind_device("GPU"), gated(bench, dims, axis, sliced=sliced, swapped=swapped, dtype=dtype)
    x = rng.standard_normal(dims).astype(dtype)
    if x.size:
        assert kinds(device, graph) == ["MovedOperands"]
        assert device.lower(graph).nodes[0].origins[-1] == graph.nodes[-1].name
    value, gate = np.split(x.astype(np.float64), 2, axis)[:: -1 if swapped else 1]
    _close(bench.run(device, device.lower(graph), [x])[0], 2 * value / (1 + np.exp(-gate)) + 1)


def test_with_channels_innermost(kind_device: Open, bench: Any, rng: Any) -> None:
    """The halves are columns there."""
    device, dims = kind_device("GPU"), (2, 12, 3, 5)
    graph = device.lower(gated(bench, dims, 1))
    typed = {name: t.with_layout(NHWC) if t.rank == 4 else t for name, t in graph.types.items()}
    x = rng.standard_normal(dims).astype(np.float32)
    (found,) = bench.run(device, graph.replace(types=typed), [np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(dims)])
    value, gate = np.split(x.astype(np.float64), 2, 1)
    _close(found.reshape(2, 3, 5, 6).transpose(0, 3, 1, 2), 2 * value / (1 + np.exp(-gate)) + 1)


def test_other_moves_and_other_operands(kind_device: Open, bench: Any, rng: Any) -> None:
    """Every second row backwards and a transpose of what is small, repeated rows, beside operands that broadcast."""
    device = kind_device("GPU")
    x, s, t = (rng.standard_normal(dims).astype(np.float32) for dims in ((5, 6), (6, 1), (6, 7)))

    def run(wanted: Any, *given: Any, make: Callable[..., str]) -> None:
        g = GraphBuilder()
        graph = bench.typed(g.graph([make(g, *(g.input(f"x{i}", "float32", a.shape) for i, a in enumerate(given)))]))
        assert kinds(device, graph) == ["MovedOperands"]
        _close(bench.run(device, device.lower(graph), given)[0], wanted)

    def part(g: GraphBuilder, x: str, *numbers: int) -> str:
        return g.node(Slice(), x, *(g.constant([n], "int64") for n in numbers))

    def turned(g: GraphBuilder, x: str, s: str) -> str:
        back = part(g, g.node(Transpose(perm=(1, 0)), x), 5, -7, 0, -1)
        return g.node(Relu(), back, post_ops=[Binary("mul", s)])

    run(np.maximum(x.T[::-1], 0) * s.astype(np.float64), x, s, make=turned)
    run(np.maximum(x[4::-2], 0), x, make=lambda g, x: g.node(Relu(), part(g, x, 4, -6, 0, -2)))
    run(s.astype(np.float64) * t, s, t, make=lambda g, s, t: g.node(Mul(), g.node(Expand(), s, g.constant([6, 7], "int64")), t))


def test_halves_are_read_beside_float32(kind_device: Open, bench: Any, rng: Any) -> None:
    graph = gated(bench, (4, 10), 1)
    types = {**graph.types, **{n: graph.types[n].with_dtype(DType.FLOAT16) for n in ("x", "p0", "p1")}}
    device, graph = kind_device("GPU"), graph.replace(types=types)
    assert kinds(device, graph) == ["MovedOperands"]
    x = rng.standard_normal((4, 10)).astype(np.float16)
    value, gate = np.split(x.astype(np.float64), 2, 1)
    _close(bench.run(device, device.lower(graph), [x])[0], 2 * value / (1 + np.exp(-gate)) + 1)


def test_parts_are_copied_where_others_read_them_or_they_are_far_apart(kind_device: Open, bench: Any) -> None:
    """A part that is an output, CPUs, a large transpose, a reader that is not elementwise."""
    graph = gated(bench, (4, 10), 1)
    assert kinds(kind_device("GPU"), gated(bench, (4, 10), 1, outputs=["p1"])) == ["Split", "Sigmoid"]
    assert kinds(kind_device("CPU"), graph) == ["Split", "Sigmoid"]
    g = GraphBuilder()
    y = g.node(Relu(), g.node(Transpose(perm=(1, 0)), g.input("x", "float32", (300, 300))))
    assert kinds(kind_device("GPU"), bench.typed(g.graph([y]))) == ["Transpose", "Relu"]
    g = GraphBuilder()
    a, b = g.node(Split(axis=1, num_outputs=2), g.input("x", "float32", (4, 10)), outputs=2)
    y = g.node(bench.op("MatMul"), a, g.node(Transpose(perm=(1, 0)), b))
    assert "MovedOperands" not in kinds(kind_device("GPU"), bench.typed(g.graph([y])))


def test_one_program_serves_other_sizes(kind_device: Open, bench: Any) -> None:
    device = kind_device("GPU")
    sources = set()
    for dims in ((3, 5, 14), (2, 7, 22)):
        graph = device.lower(gated(bench, dims, 2))
        executable = device.compile(assign_layouts(graph, device.configurations), {})
        sources |= {command.launch.source for command in executable.commands}
    assert len(sources) == 1
