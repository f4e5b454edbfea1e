"""Products with packed weights, by each kernel, against float64 of numbers that were never packed; which kernel runs what."""

import dataclasses
import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from dovetail.device import Binary, DeviceInfo, DType, Eltwise, Graph, PostOp, Sum, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.testing import KernelBench
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels import mat_mul_blocks
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, MatMulBlocks
from dovetail_ops_onnx.rms_normalization import RMSNormalization

SAMPLED = pytest.mark.exhaustive(0.25)  # each compiles programs

Array = NDArray[Any]

FORMATS = [  # bits, type, rows of a block, whether there are offsets, whether halves hold the parameters
    (4, np.uint8, 32, True, True),
    (4, np.uint8, 32, False, False),
    (4, np.uint8, 18, True, False),
    (8, np.int8, 16, False, True),
    (8, np.uint8, 128, True, False),
    (16, np.float16, 70, False, True),
    (16, bfloat16, 70, False, True),
]
FORMAT = pytest.mark.parametrize("kind", FORMATS, ids=lambda f: f"{f[0]}-{np.dtype(f[1]).name}-{f[2]}")


@pytest.fixture(scope="session")
def info(infos: Sequence[DeviceInfo]) -> DeviceInfo:
    """The first device alone: drivers for CPUs take long to build the kernels."""
    return infos[0]


class Product:
    """A random product: the graph with a sum and a relu behind it, what to run it with, and the result in float64."""

    def __init__(
        self, rng: np.random.Generator, kind: tuple[Any, ...], rows: tuple[int, ...], k: int, n: int, *, together: bool = False
    ) -> None:
        bits, dtype, size, has_offsets, halves = kind
        blocks = -(-k // size)
        low, high = {"uint8": (0, 16 if bits == 4 else 256), "int8": (-128, 128)}.get(np.dtype(dtype).name, (-99, 99))
        numbers = rng.integers(low, high, (blocks * size, n)).astype(dtype)
        scales, offsets = (rng.standard_normal((blocks, n)).astype(np.float32) for _ in range(2))
        if halves:
            scales, offsets = (x.astype(np.float16).astype(np.float32) for x in (scales, offsets))
        self.a, self.added = (rng.standard_normal((*rows, i)).astype(np.float32) for i in (k, n))
        weights = numbers.astype(np.float64) * scales.repeat(size, 0) + has_offsets * offsets.repeat(size, 0).astype(np.float64)
        self.expected = np.maximum(self.a.astype(np.float64) @ weights[:k] + self.added, 0)
        # The largest sum of absolute values of what is added up.
        self.bound = np.abs(self.a) @ (np.abs(numbers.astype(np.float64)) * np.abs(scales).repeat(size, 0) + 1)[:k] + 1
        made = (scales, offsets if has_offsets else None)
        matrix = BlockMatrix.of_nibbles(numbers, size, *made) if bits == 4 else BlockMatrix(bits, size, numbers, *made)
        if together:
            matrix = BlockMatrix.once([numbers], "test", lambda made=matrix: made)
        arrays = [self.a, *matrix.arrays]
        chain = [Sum("c"), Eltwise("relu")]
        constants = tuple(range(1, len(arrays)))
        self.graph, self.feeds = KernelBench.single(
            MatMulBlocks(bits, size), arrays, constants, post_ops=chain, operands={"c": self.added}
        )

    def check(self, got: Array) -> None:
        """The product is right."""
        assert got.shape == self.expected.shape
        assert np.all(np.abs(got - self.expected) <= 2e-6 * self.bound)


def run(device: Any, bench: Any, name: str, product: Product) -> None:
    device.forced = name
    try:
        product.check(bench.run(device, product.graph, product.feeds)[0])
    finally:
        device.forced = ""


@SAMPLED
@FORMAT
def test_packed_again_for_cpus(kind: tuple[Any, ...], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Columns around those of a tile, the last block not full; one row, and numbers of rows around those taken at once."""
    device = kind_device("CPU")
    for rows, k, n in (((1,), 1, 65), ((1, 1), 70, 33), ((1,), 2 * kind[2], 130)):
        run(device, bench, "mat_mul_blocks_row", Product(rng, kind, rows, min(k, 70) if kind[0] == 16 else k, n))
    for rows, k, n in (((2,), 70, 65), ((7, 7), 69, 33)):
        run(device, bench, "mat_mul_blocks_rows", Product(rng, kind, rows, k, n))


@SAMPLED
@FORMAT
def test_unpacked_in_registers_for_gpus(kind: tuple[Any, ...], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """Columns that are and are not whole vectors."""
    device, odd = kind_device("GPU"), FORMATS.index(kind) % 2
    for at, (rows, k, n) in enumerate((((1,), 70, 36), ((2, 3), 69, 35))):
        run(device, bench, "mat_mul_blocks_split", Product(rng, kind, rows, k, n, together=at == odd))


@pytest.mark.exhaustive(0.2)
@FORMAT
def test_unpacked_into_tiles_for_gpus(kind: tuple[Any, ...], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    device, odd = kind_device("GPU"), FORMATS.index(kind) % 2
    for at, (rows, k, n) in enumerate((((33,), 70, 36), ((9,), 69, 35))):
        run(device, bench, "mat_mul_blocks_tiled", Product(rng, kind, rows, k, n, together=at == odd))


@pytest.mark.parametrize(
    ("kind", "rows", "name"),
    [
        ("CPU", 0, "mat_mul_blocks_row"),
        ("CPU", 1, "mat_mul_blocks_row"),
        ("CPU", 2, "mat_mul_blocks_rows"),
        ("GPU", 1, "mat_mul_blocks_split"),
        ("GPU", 8, "mat_mul_blocks_split"),
        ("GPU", 9, "mat_mul_blocks_tiled"),
    ],
)
def test_the_number_of_rows_chooses(kind: str, rows: int, name: str, kind_device: Callable[[str], Any], rng: Any) -> None:
    graph = Product(rng, FORMATS[0], (rows,), 64, 36).graph
    node = TypedNode.of(graph.nodes[0], graph)
    assert next(k.name for k in kind_device(kind).kernels(node) if k.supports(node)) == name


def test_no_rows_are_no_launch(device: OpenCLDevice, bench: Any, rng: Any) -> None:
    product = Product(rng, FORMATS[0], (2, 0), 64, 36)
    assert bench.run(device, product.graph, product.feeds)[0].shape == (2, 0, 36)


def test_plans_for_other_rows_share_the_packed_matrix(kind_device: Callable[[str], Any], rng: Any) -> None:
    """And keep it when the first one is closed."""
    device, product = kind_device("CPU"), Product(rng, FORMATS[0], (1,), 64, 100)
    longer = rng.standard_normal((5, 64)).astype(np.float32)
    types = dict(product.graph.types)
    types |= {name: types[name].with_shape(dims) for name, dims in (("x0", (5, 64)), ("c", (5, 100)), ("y0", (5, 100)))}
    other: Graph = product.graph.replace(types=types)
    first, second = device.compile(product.graph, {}), device.compile(other, {})
    arrays = [{i for i, one in plan.constants().items() if one.array.dtype == np.uint8} for plan in (first, second)]
    assert len(arrays[0]) == 1
    assert arrays[0] == arrays[1]
    request, kept = first.create_request(), second.create_request()
    product.check(request.run(product.feeds)[0])
    request.close()
    first.close()
    second.close()
    del request, first, second
    gc.collect()
    added = np.zeros((5, 100), np.float32)
    got = kept.run([longer, added])[0]
    assert got.shape == (5, 100)
    again = device.compile(other, {}).create_request()
    np.testing.assert_array_equal(again.run([longer, added])[0], got)


class Decoder:
    """Products of one A: three side by side, and one that is multiplied by the activation of another; all in float64 too."""

    def __init__(self, rng: np.random.Generator, kind: tuple[Any, ...], rows: int, columns: Sequence[int]) -> None:
        bits, dtype, size, has_offsets, _ = kind
        k = 2 * size
        self.a = rng.standard_normal((rows, k)).astype(np.float32)
        g, self.expected, types = GraphBuilder(), [], {}
        x = g.input("x", "float32", self.a.shape)
        chains: list[list[PostOp]] = [[], [], [], [Eltwise("swish", 1.0)], [Binary("mul", "y3")]]
        for index, (n, chain) in enumerate(zip(columns, chains, strict=True)):
            numbers = rng.integers(0, 16 if bits == 4 else 100, (k, n)).astype(dtype)
            scales, offsets = (rng.standard_normal((2, n)).astype(np.float32) / 50 for _ in range(2))
            weights = numbers.astype(np.float64) * scales.repeat(size, 0) + has_offsets * offsets.repeat(size, 0)
            made = (scales, offsets if has_offsets else None)
            matrix = BlockMatrix.of_nibbles(numbers, size, *made) if bits == 4 else BlockMatrix(bits, size, numbers, *made)
            if columns[0] % 4 == 0:  # in one block each
                matrix = BlockMatrix.once([numbers], "test", lambda made=matrix: made)
            names = [g.constant(v, name=f"c{index}") for v in matrix.arrays]
            g.node(MatMulBlocks(bits, size), x, *names, name=f"m{index}", outputs=[f"y{index}"], post_ops=chain)
            types[f"y{index}"] = TensorType(DType.FLOAT32, (rows, n))
            self.expected.append(self.a.astype(np.float64) @ weights)
        gate = self.expected.pop(3)
        self.expected[3] *= gate / (1 + np.exp(-gate))
        graph = g.graph(["y0", "y1", "y2", "y4"])
        self.graph = graph.replace(types={**graph.types, **types})

    def check(self, executable: Any) -> None:
        """The results are right."""
        got = executable.create_request().run([self.a])
        assert len(got) == len(self.expected)
        for y, want in zip(got, self.expected, strict=True):
            assert y.shape == want.shape
            np.testing.assert_allclose(y, want, rtol=0, atol=1e-5 * float(np.abs(want).max()))


@SAMPLED
@pytest.mark.parametrize(
    ("kind", "rows", "launches"), [("CPU", 1, 2), ("CPU", 2, 5), ("GPU", 1, 2), ("GPU", 6, 2)], ids=lambda x: str(x)
)
@pytest.mark.parametrize("columns", [(65, 130, 7, 70, 70), (64, 32, 36, 40, 40)], ids=["odd", "fours"])
@pytest.mark.parametrize("form", [FORMATS[0], FORMATS[3]], ids=["4", "8"])
def test_short_products_of_one_input_are_one_launch(
    kind: str, rows: int, launches: int, columns: Sequence[int], form: Any, kind_device: Callable[[str], Any], rng: Any
) -> None:
    device, decoder = kind_device(kind), Decoder(rng, form, rows, columns)
    executable = device.compile(device.lower(decoder.graph), {})
    assert len(executable.commands) == launches
    decoder.check(executable)


def test_products_are_joined_only_where_the_rest_of_the_graph_stays_as_it_is(kind_device: Callable[[str], Any], rng: Any) -> None:
    device, graph = kind_device("CPU"), Decoder(rng, FORMATS[0], 1, (64, 32, 36, 40, 40)).graph

    def lowered(graph: Graph) -> list[tuple[str, str]]:
        return [(node.op.op_type, node.name) for node in device.lower(graph).nodes]

    assert lowered(graph) == [("JoinedProducts", "m0"), ("JoinedProducts", "m4")]
    assert device.lower(graph).nodes[0].origins == ("m0", "m1", "m2")
    read_twice = graph.replace(outputs=(*graph.outputs, "y3"))
    assert lowered(read_twice) == [("JoinedProducts", "m0"), ("MatMulBlocks", "m3"), ("MatMulBlocks", "m4")]
    chains = [dataclasses.replace(n, post_ops=(Eltwise("relu"),)) if n.name in ("m1", "m2") else n for n in graph.nodes]
    names = ["m0", "m1", "m2"]
    assert lowered(graph.replace(nodes=tuple(chains)))[:3] == [("MatMulBlocks", name) for name in names]
    wider = {**graph.types, "y3": graph.types["y3"].with_shape((1, 1))}
    assert ("MatMulBlocks", "m4") in lowered(graph.replace(types=wider))
    others = [dataclasses.replace(n, op=MatMulBlocks(4, 64)) if n.name == "m1" else n for n in graph.nodes]
    assert lowered(graph.replace(nodes=tuple(others)))[:2] == [("JoinedProducts", "m0"), ("MatMulBlocks", "m1")]


class Normalized:
    """Products of x [rows, k] normalized, and, where they are the gate of another one or a sum follows, that."""

    def __init__(self, rng: Any, columns: Sequence[int], chains: Sequence[list[PostOp]], rows: int = 3, k: int = 36) -> None:
        self.x, scale = rng.standard_normal((rows, k)).astype(np.float32), rng.standard_normal(k).astype(np.float32)
        g, types = GraphBuilder(), {}
        x, z = g.input("x", "float32", self.x.shape), g.input("z", "float32", (rows, columns[0]))
        self.z = rng.standard_normal((rows, columns[0])).astype(np.float32)
        h = g.node(RMSNormalization(epsilon=0.5), x, g.constant(scale, name="scale"), name="norm", outputs=["h"])
        types["h"] = TensorType(DType.FLOAT32, (rows, k))
        inner = self.x.astype(np.float64)
        inner = inner / np.sqrt((inner**2).mean(1, keepdims=True) + 0.5) * scale
        self.products = []
        for index, (n, chain) in enumerate(zip(columns, chains, strict=True)):
            numbers = rng.integers(0, 16, (36, n)).astype(np.uint8)
            scales, offsets = (rng.standard_normal((2, n)).astype(np.float32) for _ in range(2))
            matrix = BlockMatrix.of_nibbles(numbers, 18, scales, offsets)
            names = [g.constant(v, name=f"c{index}") for v in (matrix.q, matrix.scales, matrix.offsets) if v is not None]
            g.node(MatMulBlocks(4, 18), h, *names, name=f"m{index}", outputs=[f"y{index}"], post_ops=chain)
            types[f"y{index}"] = TensorType(DType.FLOAT32, (rows, n))
            self.products.append(inner @ ((numbers * scales.astype(np.float64).repeat(18, 0)) + offsets.repeat(18, 0))[:k])
        self.graph = g.graph(["y1"] if any(isinstance(c, Binary) for c in chains[-1]) else [f"y{i}" for i in range(len(columns))])
        self.graph = self.graph.replace(types={**self.graph.types, **types}, inputs=(x, z) if z in _read(self.graph) else (x,))
        assert x in self.graph.inputs

    def run(self, device: Any, launches: int) -> Any:
        """The results, of so many launches."""
        executable = device.compile(device.lower(self.graph), {})
        assert len(executable.commands) == launches
        return executable.create_request().run([self.x, self.z][: len(self.graph.inputs)])


def _read(graph: Graph) -> set[str]:
    return {name for node in graph.nodes for name in node.reads}


def _close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * float(np.abs(want).max()))


@SAMPLED
@pytest.mark.parametrize("columns", [(65, 7, 36), (8, 32, 36)], ids=["odd", "fours"])
@pytest.mark.parametrize("rows", [1, 3, 6])
def test_a_normalization_before_products_is_a_part_of_their_launch(kind_device: Any, rng: Any, columns: Any, rows: int) -> None:
    device, side = kind_device("GPU"), Normalized(rng, columns, [[], [], []], rows)
    for got, want in zip(side.run(device, 1), side.products, strict=True):
        _close(got, want)
    gated = Normalized(rng, columns[:1] * 2, [[Eltwise("swish", 1.0)], [Binary("mul", "y0")]], rows, k=34)
    gate, up = gated.products
    _close(gated.run(device, 1)[0], up * gate / (1 + np.exp(-gate)))
    summed = Normalized(rng, columns[:1], [[Sum("z")]], rows)
    _close(summed.run(device, 1)[0], summed.products[0] + summed.z)


def test_a_normalization_stays_where_others_read_it(kind_device: Any, rng: Any) -> None:
    """And on CPUs, before products of several launches, and where it is of more axes than one."""
    case = Normalized(rng, (8, 8), [[], []])
    wanted = [("RMSNormalization", "norm"), ("JoinedProducts", "m0")]

    def lowered(kind: str, graph: Graph) -> list[tuple[str, str]]:
        return [(node.op.op_type, node.name) for node in kind_device(kind).lower(graph).nodes]

    assert lowered("GPU", case.graph) == [("JoinedProducts", "m0")]
    assert kind_device("GPU").lower(case.graph).nodes[0].origins == ("norm", "m0", "m1")
    assert lowered("GPU", case.graph.replace(outputs=("y0", "y1", "h"))) == wanted
    both = [dataclasses.replace(n, op=RMSNormalization(axis=0)) if n.name == "norm" else n for n in case.graph.nodes]
    assert lowered("GPU", case.graph.replace(nodes=tuple(both))) == wanted
    assert lowered("CPU", Normalized(rng, (8, 8), [[], []], rows=1).graph) == wanted
    apart = Normalized(rng, (8, 8), [[Eltwise("relu")], [Eltwise("relu")]])
    assert lowered("GPU", apart.graph)[0] == ("RMSNormalization", "norm")


def test_vectors_are_as_wide_as_the_driver_survives(kind_device: Callable[[str], Any], monkeypatch: Any) -> None:
    device = kind_device("CPU")
    kernel = mat_mul_blocks.KERNELS[0]
    assert isinstance(kernel, mat_mul_blocks.PackedKernel)
    for native, survives, lanes in ((16, True, 16), (16, False, 8), (8, True, 8)):
        monkeypatch.setattr(mat_mul_blocks, "survives", lambda identity, survives=survives: survives)
        assert kernel.on(dataclasses.replace(device.caps, vector_width=8, native_lanes=native)).lanes == lanes


def test_a_matrix_that_is_no_constant_stays_on_the_host(kind_device: Callable[[str], Any], rng: Any) -> None:
    product = Product(rng, FORMATS[0], (1,), 64, 36)
    graph = product.graph.replace(
        types={name: dataclasses.replace(t, value=None) for name, t in product.graph.types.items()},
        constants={},
        inputs=(*product.graph.inputs, *product.graph.constants),
    )
    kernel = mat_mul_blocks.KERNELS[0].on(kind_device("CPU").caps)
    assert str(kernel.supports(TypedNode.of(graph.nodes[0], graph))) == "memory layout: the matrix is not constant"
