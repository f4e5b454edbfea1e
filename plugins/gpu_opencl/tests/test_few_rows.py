"""Products of a few rows with constant weights on GPUs, against float64."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DType, Eltwise, Graph, PostOp, Refusal, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.rms_normalization import RMSNormalization

KERNEL = "gemm_few_rows"


@pytest.mark.exhaustive(0.5)  # each compiles programs
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 8), (2, 7, 24), (3, 130, 1032), (4, 33, 4104), (1, 64, 264)])
def test_products_of_few_rows(
    rows: int, columns: int, depth: int, dtype: Any, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """Weights as MatMul and as a transposed Gemm with C have them; depths that fill no item, all and several times all."""
    a, b, c = (rng.standard_normal(dims).astype(dtype) for dims in ((rows, depth), (depth, columns), (columns,)))
    wide = [x.astype(np.float64) for x in (a, b, c)]
    device = kind_device("GPU")
    tolerance = 1e-4 * depth**0.5 if dtype == np.float32 else 2e-3 * depth**0.5
    for op, given, expected in (
        (bench.op("MatMul"), [a, b], wide[0] @ wide[1]),
        (
            bench.op("Gemm", alpha=0.5, beta=2.0, transB=1),
            [a, np.ascontiguousarray(b.T), c],
            0.5 * wide[0] @ wide[1] + 2 * wide[2],
        ),
    ):
        graph, feeds = bench.single(op, given, range(1, len(given)))
        assert KERNEL in bench.accepted(device, graph, graph.nodes[0])
        np.testing.assert_allclose(bench.run(device, graph, feeds)[0], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("largest", [1.0, 1e5])
def test_rows_of_float16_and_weights_of_float32(
    largest: float, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """As under the hint f16: the weights are rounded, too, unless float16 does not hold them."""
    b = rng.standard_normal((16, 3)).astype(np.float32)
    b[0, 0] = largest
    a = rng.standard_normal((2, 16)).astype(np.float16)
    graph, _ = bench.single(bench.op("MatMul"), [a.astype(np.float32), b], (1,))
    types = {**graph.types, graph.inputs[0]: graph.types[graph.inputs[0]].with_dtype(DType.FLOAT16)}
    (found,) = bench.run(kind_device("GPU"), graph.replace(types=types), [a])
    rounded = b.astype(np.float16) if largest == 1.0 else b
    np.testing.assert_allclose(found, a.astype(np.float64) @ rounded.astype(np.float64), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("rows", "depth", "constants"), [(5, 16, (1,)), (1, 12, (1,)), (1, 16, ())])
def test_others_are_refused(
    rows: int, depth: int, constants: tuple[int, ...], kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """Many rows, a depth that vectors do not divide, weights that are not constant."""
    given = [rng.standard_normal(dims).astype(np.float32) for dims in ((rows, depth), (depth, 8))]
    graph, _ = bench.single(bench.op("MatMul"), given, constants)
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in kind_device("GPU").kernels(node) if k.name == KERNEL)
    assert isinstance(kernel.supports(node), Refusal)


class Side:
    """Products of one x [rows, depth], with a chain for each, perhaps of x normalized, and their results in float64."""

    def __init__(
        self,
        rng: np.random.Generator,
        op: Any,
        rows: int,
        columns: Sequence[int],
        chains: Sequence[Sequence[PostOp]],
        *,
        biased: bool = False,
        normalized: bool = True,
        dtype: Any = np.float32,
        depth: int = 72,
    ) -> None:
        self.x, scale = rng.standard_normal((rows, depth)).astype(dtype), rng.standard_normal(depth).astype(np.float32)
        g, self.results = GraphBuilder(), []
        read, inner = g.input("x", str(np.dtype(dtype)), self.x.shape), self.x.astype(np.float64)
        types = {}
        if normalized:
            read = g.node(RMSNormalization(epsilon=0.5), read, g.constant(scale), name="norm", outputs=["h"])
            types["h"] = TensorType(DType.of(dtype), (rows, depth))
            inner = inner / np.sqrt((inner**2).mean(1, keepdims=True) + 0.5) * scale
        for i, (n, chain) in enumerate(zip(columns, chains, strict=True)):
            w, b = rng.standard_normal((depth, n)).astype(dtype), rng.standard_normal(n).astype(np.float32)
            matrix = g.constant(np.ascontiguousarray(w.T) if getattr(op, "transB", False) else w)
            bias = g.constant(b) if biased else None
            own, given = list(chain), [read, matrix]
            if bias is not None and op.stem == "gemm" and dtype == np.float32:
                given.append(bias)
            elif bias is not None:
                own = [Binary("add", bias), *own]
            g.node(op, *given, name=f"m{i}", outputs=[f"y{i}"], post_ops=own)
            types[f"y{i}"] = TensorType(DType.of(dtype), (rows, n))
            self.results.append(inner @ w.astype(np.float64) + (b if biased else 0))
        read_by = {p.operand for chain in chains for p in chain if isinstance(p, Binary)}
        self.graph = g.graph([f"y{i}" for i in range(len(columns)) if f"y{i}" not in read_by])
        self.graph = self.graph.replace(types={**self.graph.types, **types})

    def run(self, device: Any, launches: int) -> Any:
        """The results, of so many launches."""
        executable = device.compile(device.lower(self.graph), {})
        assert len(executable.commands) == launches, [str(report) for report in executable.reports]
        assert {report.kernel for report in executable.reports} == {KERNEL}
        return executable.create_request().run([self.x])


def _close(got: Any, want: Any) -> None:
    tolerance = 4e-3 if got.dtype == np.float16 else 2e-6
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=tolerance * float(np.abs(want).max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", ["MatMul", "Gemm"])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("rows", "columns", "biased"), [(1, (65, 7, 36), True), (3, (8, 33), False), (4, (5, 130, 9), True)])
def test_products_of_one_input_are_one_launch(
    rows: int,
    columns: Sequence[int],
    biased: bool,
    normalized: bool,
    name: str,
    dtype: Any,
    kind_device: Any,
    bench: Any,
    rng: Any,
) -> None:
    """Two or three, with biases as inputs or post-ops, the normalization before them in the same launch."""
    op = bench.op(name, transB=1) if name == "Gemm" else bench.op(name)
    side = Side(rng, op, rows, columns, [()] * len(columns), biased=biased, normalized=normalized, dtype=dtype)
    for got, want in zip(side.run(kind_device("GPU"), 1), side.results, strict=True):
        _close(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("first", [True, False])
def test_a_gate_and_what_it_multiplies_are_one_launch(
    first: bool, biased: bool, dtype: Any, kind_device: Any, bench: Any, rng: Any
) -> None:
    """The chain of the gate is before the product, whichever of the two comes last."""
    swish = Eltwise("swish", 1.0)
    chains = [[swish], [Binary("mul", "y0")]] if first else [[], [swish, Binary("mul", "y0")]]
    side = Side(rng, bench.op("MatMul"), 2, (36, 36), chains, biased=biased, dtype=dtype, depth=1032)
    gate, other = side.results if first else side.results[::-1]
    _close(side.run(kind_device("GPU"), 1)[0], gate / (1 + np.exp(-gate)) * other)


def test_a_product_with_post_ops_is_normalized_in_its_launch(kind_device: Any, bench: Any, rng: Any) -> None:
    side = Side(rng, bench.op("MatMul"), 1, (12,), [[Eltwise("relu")]], biased=True)
    _close(side.run(kind_device("GPU"), 1)[0], np.maximum(side.results[0], 0))


def test_few_products_share_their_weights_with_plans_of_other_rows(kind_device: Any, bench: Any, rng: Any) -> None:
    """The matrices are laid out once."""
    device = kind_device("GPU")
    one = Side(rng, bench.op("MatMul"), 1, (16, 8), [(), ()], biased=True).graph
    (x,) = one.inputs
    two = one.replace(types={n: t.with_shape((2, *t.dims[1:])) if n in (x, "h", "y0", "y1") else t for n, t in one.types.items()})
    kept = [device.compile(device.lower(graph), {}) for graph in (one, two)]
    arrays = [[a.array for a in executable.commands[0].launch.arguments if hasattr(a, "array")] for executable in kept]
    assert arrays[0]
    assert all(a is b for a, b in zip(*arrays, strict=True))


@pytest.mark.parametrize("rows", [1, 3, 5, 64])
@pytest.mark.parametrize("chains", [[(), (), ()], [(Eltwise("swish", 1.0),), (Binary("mul", "y0"),)]])
def test_hurried_plans_run_other_numbers_of_rows_by_the_same_program(
    rows: int, chains: Any, without_matrix_units: Any, bench: Any, rng: Any
) -> None:
    """Rows of three results, and of a gate, that fill the last group of rows or not."""
    columns = [36, 7, 65][: len(chains)] if len(chains) > 2 else [36, 36]
    side = Side(rng, bench.op("MatMul"), rows, columns, chains, biased=True)
    changed = {name for name in side.graph.types if name in (*side.graph.inputs, "h", "y0", "y1", "y2")}
    types = {n: t.with_shape((2, *t.dims[1:])) if n in changed else t for n, t in side.graph.types.items()}
    device = without_matrix_units("GPU").configured({})
    first = device.compile(device.lower(side.graph.replace(types=types)), {})
    executable = device.compile(device.lower(side.graph), {})
    sources = [[command.launch.source for command in one.commands] for one in (first, executable)]
    assert len(sources[0]) == 1
    assert sources[0] == sources[1]
    results = side.results if len(chains) > 2 else [side.results[0] / (1 + np.exp(-side.results[0])) * side.results[1]]
    for got, want in zip(executable.create_request().run([side.x]), results, strict=True):
        _close(got, want)


def test_products_stay_alone_where_they_cannot_be_joined(kind_device: Any, bench: Any, rng: Any) -> None:
    """One with a bias beside one without, other post-ops, a gate that is read twice, a normalization that others read."""
    device = kind_device("GPU")

    def lowered(graph: Graph) -> list[tuple[str, str]]:
        return [(node.op.op_type, node.name) for node in device.lower(graph).nodes]

    def changed(graph: Graph, name: str, **new: Any) -> Graph:
        return graph.replace(nodes=tuple(dataclasses.replace(n, **new) if n.name == name else n for n in graph.nodes))

    norm, alone = ("RMSNormalization", "norm"), [("MatMul", "m0"), ("MatMul", "m1")]
    plain = Side(rng, bench.op("MatMul"), 1, (8, 8), [(), ()], biased=True).graph
    assert lowered(plain) == [("JoinedProducts", "m0")]
    assert device.lower(plain).nodes[0].origins == ("norm", "m0", "m1")
    assert lowered(plain.replace(outputs=("y0", "y1", "h"))) == [norm, ("JoinedProducts", "m0")]
    assert lowered(changed(plain, "m1", post_ops=())) == [norm, *alone]
    assert lowered(changed(plain, "norm", op=RMSNormalization(axis=0))) == [norm, ("JoinedProducts", "m0")]
    gated = Side(rng, bench.op("MatMul"), 1, (8, 8), [(), [Binary("mul", "y0")]]).graph
    assert lowered(gated) == [("JoinedProducts", "m1")]
    assert lowered(gated.replace(outputs=("y0", "y1"))) == [norm, *alone]
    assert lowered(changed(gated, "m1", post_ops=(Binary("mul", "y0"), Eltwise("relu")))) == [norm, *alone]
    scaled = [bench.op("Gemm", transB=1, beta=0.5), bench.op("Gemm", transB=1, alpha=2.0)]
    for op in scaled:
        graph = Side(rng, op, 1, (8, 8), [(), ()], biased=True).graph
        assert lowered(graph) == [norm, ("Gemm", "m0"), ("Gemm", "m1")]
