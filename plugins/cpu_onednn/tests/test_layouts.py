"""Layouts end to end: what oneDNN numbers, chains of convolutions in the layouts that it chooses, and results in place."""

import contextlib
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dovetail.device import BYXF, PLAIN, DType, KernelTable, Layout, Reorder, TensorType, TypedNode
from dovetail.graph import Graph, GraphBuilder, Node
from dovetail_cpu_onednn import reorder
from dovetail_cpu_onednn.binding import MemoryDesc, Unimplemented
from dovetail_cpu_onednn.descriptors import describe, padded_type, plain, token_of, tokens
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.kernels.quantize_linear import Quantize
from dovetail_cpu_onednn.kernels.reorder import ReorderKernel
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.transpose import Transpose

SPATIAL = {3: (5,), 4: (5, 6), 5: (3, 4, 5)}


def _numbered(dims: tuple[int, ...]) -> list[MemoryDesc]:
    """The descriptors of a shape in all layouts that oneDNN numbers."""
    found = []
    for tag in range(2, 800):
        with contextlib.suppress(Unimplemented):
            found.append(library().tagged(dims, tag))
    return found


@pytest.mark.parametrize("dims", [(33, 7), (17, 3, 5), (33, 17, 3, 3), (19, 1, 1, 5, 5), (2, 8, 20, 3, 3)])
def test_small_constants_are_moved_as_by_a_primitive(dims, monkeypatch):
    data, layouts = np.random.default_rng(0).standard_normal(dims, np.float32), _numbered(dims)
    moves = {}
    for small in (0, data.nbytes):
        monkeypatch.setattr(reorder, "SMALL", small)
        memories = [np.full(library().nbytes(dst), 255, np.uint8) for dst in layouts]
        moves[small] = [reorder.moved(data, plain(dims), dst, memory) for dst, memory in zip(layouts, memories, strict=True)]
    assert len(layouts) > 5
    np.testing.assert_array_equal(np.concatenate(moves[0]), np.concatenate(moves[data.nbytes]))


def test_a_constant_with_gaps_or_reversed_axes_is_moved(monkeypatch):
    """The layout that it comes from may be any with strides: here that of a transposed matrix."""
    data = np.random.default_rng(0).standard_normal((7, 33), np.float32)
    src = library().strided((33, 7), (1, 33))
    for dst in _numbered((33, 7)):
        (by_numpy, by_primitive) = (np.full(library().nbytes(dst), 255, np.uint8) for _ in range(2))
        reorder.moved(data, src, dst, by_numpy)
        with monkeypatch.context() as patch:
            patch.setattr(reorder, "SMALL", 0)
            reorder.moved(data, src, dst, by_primitive)
        np.testing.assert_array_equal(by_numpy, by_primitive)


@pytest.mark.parametrize("rank", SPATIAL)
def test_tokens(rank):
    """The numbers of the blocked layouts are right: a reorder to each puts every element where its name says."""
    dims = (2, 11, *SPATIAL[rank])
    data = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    lib = library()
    for layout in tokens(rank):
        tensor = TensorType(DType.FLOAT32, dims, None, layout)
        desc = describe(tensor)
        assert token_of(desc) == layout
        filled = padded_type(tensor)
        assert lib.nbytes(desc) == filled.nbytes
        out = np.full(filled.size, np.nan, np.float32)
        plain = describe(tensor.with_layout(PLAIN))
        lib.execute(lib.describe_reorder(plain, desc), [(1, plain, data.ctypes.data), (17, desc, out.ctypes.data)])
        np.testing.assert_array_equal(out.reshape(-1), _in_layout(data, layout, filled.dims).reshape(-1))


def _in_layout(data, layout, dims):
    if layout.is_permutation:
        return data.transpose(layout.order(data.ndim))
    block = layout.block
    whole = np.zeros(dims, np.float32)
    whole[:, : data.shape[1]] = data
    split = whole.reshape(dims[0], dims[1] // block, block, *dims[2:])
    return np.moveaxis(split, 2, -1)


SINGLE = [(1, 1, 5, 6), (3, 1, 5, 6), (1, 32, 1, 1), (2, 32, 1, 1), (2, 11, 1, 1), (2, 24, 1, 1), (2, 16, 1, 4), (1, 3, 4, 5)]


@pytest.mark.parametrize("dims", [*SINGLE, (2, 48, 1), (1, 4, 3), (1, 1, 2, 3, 4)])
def test_a_reorder_that_moves_nothing_is_a_view(dims):
    """Between each two layouts: it is a view exactly where oneDNN's reorder gives the bytes that it takes, without filling."""
    data, lib = np.arange(1, np.prod(dims) + 1, dtype=np.float32), library()
    for layout, other in itertools.permutations([PLAIN, *tokens(len(dims))], 2):
        src, dst = (TensorType(DType.FLOAT32, dims, None, one) for one in (layout, other))
        held = np.zeros((2, dims[0] * (dims[1] + 16) * math.prod(dims[2:])), np.float32)
        for row, tensor in zip(held, (src, dst), strict=True):
            plain, desc = describe(tensor.with_layout(PLAIN)), describe(tensor)
            lib.execute(lib.describe_reorder(plain, desc), [(1, plain, data.ctypes.data), (17, desc, row.ctypes.data)])
        g = Graph((Node("n", Reorder(), ("x",), ("y",)),), ("x",), ("y",), types={"x": src, "y": dst})
        found = ReorderKernel().as_view(TypedNode.of(g.nodes[0], g))
        is_filled = any(one.block and dims[1] % one.block for one in (layout, other))
        assert (found is not None) == bool((held[0] == held[1]).all() and not is_filled), (layout, other)


@pytest.mark.parametrize("batch", [1, 3])
def test_networks_with_reorders_that_move_nothing(bench, batch):
    """Images of one channel come in as channels-last ones, and channels of one pixel go out of blocks."""
    rng = np.random.default_rng(batch)
    g = GraphBuilder()
    x = g.input("x", "float32", (batch, 1, 9, 7))
    wei = g.constant(rng.standard_normal((32, 1, 3, 3)).astype(np.float32), name="w")
    last = g.constant(rng.standard_normal((5, 32)).astype(np.float32), name="l")
    pooled = g.node(GlobalAveragePool(), g.node(Conv(), x, wei, name="c"), name="p")
    graph = g.graph([g.node(Gemm(transB=1), g.node(Flatten(), pooled, name="f"), last, outputs=["y"], name="m")])
    data = rng.standard_normal((batch, 1, 9, 7)).astype(np.float32)
    executable = bench.executable(graph)
    reorders = [p.label for p in executable.placements if isinstance(p.node.op, Reorder)]
    assert reorders
    assert {*reorders} == {"view"}
    (found,) = executable.create_request().run([data])
    np.testing.assert_allclose(found, reference(bench, graph, data), rtol=1e-4, atol=1e-5)


def test_reports_name_the_implementations_that_run(bench):
    """Also of a reorder, which is chosen in plain types: from plain to plain data oneDNN has another implementation."""
    rng, g = np.random.default_rng(3), GraphBuilder()
    first, last = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 1, 3, 3), (5, 16 * 7 * 5)))
    maps = g.node(Conv(), g.input("x", "float32", (1, 1, 9, 7)), g.constant(first))
    executable = bench.executable(g.graph([g.node(Gemm(transB=1), g.node(Flatten(), maps), g.constant(last), outputs=["y"])]))
    run = {p.node.name: p.label for p in executable.placements if p.node.name in executable.planned}
    assert any(isinstance(p.node.op, Reorder) for p in executable.placements if p.node.name in run)
    assert run == {name: executable.planned[name].plan.name for name in run}


TO_FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
TO_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("rank", SPATIAL)
def test_convolutions_between_transposes(bench, rank, batch):
    """The channels are last in the model, and wherever a convolution takes them so the transposes are views."""
    rng = np.random.default_rng(rank)
    shape = (batch, *SPATIAL[rank], 32)
    weights = [rng.standard_normal((32, 32, *(3,) * (rank - 2))).astype(np.float32) / 10 for _ in range(2)]
    g = GraphBuilder()
    y, pads = g.input("x", "float32", shape), (1,) * (2 * (rank - 2))
    for index, wei in enumerate(weights):
        y = g.node(Transpose(perm=TO_FIRST[rank]), y)
        y = g.node(Conv(pads=pads), y, g.constant(wei, name=f"w{index}"), name=f"c{index}")
        y = g.node(Relu(), g.node(Transpose(perm=TO_LAST[rank]), y))
    graph, data = g.graph([g.node(Relu(), y, outputs=["y"])]), rng.standard_normal(shape).astype(np.float32)
    executable = bench.executable(graph)
    (found,) = executable.create_request().run([data])
    np.testing.assert_allclose(found, reference(bench, graph, data), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "float64"])
@pytest.mark.parametrize("rank", SPATIAL)
@pytest.mark.parametrize("perms", [TO_FIRST, TO_LAST])
def test_transposes_of_channels_alone_and_with_readers_in_both_orders(bench, dtype, rank, perms):
    """As inputs and outputs of a graph, which are plain, and with a reader that takes any layout."""
    rng, dims = np.random.default_rng(rank), (2, 7, *SPATIAL[rank])
    g = GraphBuilder()
    x = g.input("x", dtype, dims)
    turned = g.node(Transpose(perm=perms[rank]), x)
    graph = g.graph([turned, g.node(Add(), turned, turned), g.node(Transpose(perm=perms[rank]), g.node(Add(), x, x))])
    data = rng.integers(0, 99, dims).astype(dtype)
    request = bench.executable(graph).create_request()
    for _ in range(2):
        want = data.transpose(perms[rank])
        for found, right in zip(request.run([data]), (want, want + want, want + want), strict=True):
            np.testing.assert_array_equal(found, right)


def test_transposes_become_views_of_channels_last(bench):
    """Bytes that a pooling primitive reads with the channels last: nothing is moved."""
    data = np.random.default_rng(0).integers(0, 256, (2, 9, 8, 32)).astype(np.uint8)
    g = GraphBuilder()
    y = g.node(Transpose(perm=TO_FIRST[4]), g.input("x", "uint8", data.shape))
    y = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), y, outputs=1)
    graph = g.graph([g.node(Transpose(perm=TO_LAST[4]), y)])
    executable = bench.executable(graph)
    stems = [p.node.op.stem for p in executable.placements]
    assert stems == ["viewed_transpose", "max_pool", "viewed_transpose"]
    (found,) = executable.create_request().run([data])
    np.testing.assert_array_equal(found, data[:, :8].reshape(2, 4, 2, 4, 2, 32).max((2, 4)))


@pytest.mark.parametrize("layout", [PLAIN, Layout("BYXF")])
@pytest.mark.parametrize("dims", [(1, 7, 13), (3, 16, 1), (2, 1, 30)])
def test_largest_numbers_of_sequences(layout, dims):
    """By NumPy, whatever there is: oneDNN passes over NaN, and starts from the lowest number."""
    rng = np.random.default_rng(sum(dims))
    x = rng.standard_normal(dims).astype(np.float32)
    x[0, 0] = -np.inf
    x[-1, -1, 0] = np.nan
    kernel = KernelTable("dovetail_cpu_onednn.kernels", ("dovetail_ops_onnx",))[GlobalMaxPool()][0]
    src, dst = (TensorType(DType.FLOAT32, shape, None, layout) for shape in (dims, (*dims[:2], 1)))
    node = TypedNode(Node("n", GlobalMaxPool(), ("x",), ("y",)), (src,), (dst,))
    assert layout in [config.inputs[0] for config in kernel.configurations(node)]
    held = {"x": np.ascontiguousarray(x.transpose(src.order)), "y": np.zeros(dst.memory_dims, np.float32)}
    for call in kernel.bind(node, held.__getitem__):
        assert call() is None
    np.testing.assert_array_equal(held["y"].reshape(dims[:2]), x.max(2))


def network(rng, channels, rank, *, dense=False):
    """conv - relu - conv - add (residual) - relu - max pool - conv [- concat] - mean, and its inputs."""
    g = GraphBuilder()
    spatial = {3: (29,), 4: (17, 13), 5: (7, 6, 9)}[rank]
    x = g.input("x", "float32", (2, 3, *spatial))
    pads = (1,) * (2 * (rank - 2))

    def conv(name, value, inputs, outputs, size=3, **attributes):
        shape = (outputs, inputs, *(size,) * (rank - 2))
        wei = g.constant((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name=f"{name}_w")
        bias = g.constant(rng.standard_normal(outputs).astype(np.float32), name=f"{name}_b")
        return g.node(Conv(pads=pads if size == 3 else None, **attributes), value, wei, bias, outputs=[name], name=f"n_{name}")

    a = g.node(Relu(), conv("c1", x, 3, channels), outputs=["r1"], name="n_r1")
    b = g.node(Add(), conv("c2", a, channels, channels), a, outputs=["s"], name="n_s")
    r = g.node(Relu(), b, outputs=["r2"], name="n_r2")
    p = g.node(MaxPool(kernel_shape=(2,) * (rank - 2), strides=(2,) * (rank - 2)), r, outputs=["p"], name="n_p")
    last = conv("c3", p, channels, channels + 5, size=1)
    if dense:
        last = g.node(Concat(axis=1), last, p, outputs=["d"], name="n_d")
    g.node(GlobalAveragePool(), last, outputs=["y"], name="n_y")
    return g.graph(["y"]), rng.standard_normal((2, 3, *spatial)).astype(np.float32)


def reference(bench, graph, x):
    """Every node by its reference, in float64."""
    values = {"x": x.astype(np.float64), **{name: array.astype(np.float64) for name, array in graph.constants.items()}}
    for node in graph.nodes:
        found = node.op.reference(*(values[name] for name in node.inputs))
        values[node.outputs[0]] = found[0] if isinstance(found, tuple) else found
    return values["y"]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("channels", [16, 24, 7])
def test_networks(bench, channels, rank, dense):
    graph, x = network(np.random.default_rng(channels + rank), channels, rank, dense=dense)
    want = reference(bench, graph, x)
    for fuse in (False, True):
        executable = bench.executable(graph, fuse=fuse)
        assert not [r.name for r in executable.reports if r.kernel == "ref"]
        (got,) = bench.run_twice(executable, [x])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_fusion_and_layouts_happen(bench):
    """Activations and the residual sum go into the convolutions, which choose other layouts than plain."""
    graph, _ = network(np.random.default_rng(1), 32, 4)
    executable = bench.executable(graph, fuse=True)
    chains = {report.name: report.post_ops for report in executable.reports}
    assert chains["n_c1"] == ("relu",)
    assert chains["n_c2"] == ("add", "relu")
    assert {executable.graph.types[name].layout for name in ("r2", "p")} != {PLAIN}
    assert executable.memory.storage["r2"] != executable.memory.storage["r1"], "a convolution overwrites what it reads"


@pytest.mark.parametrize("lives_on", [False, True])
def test_residual(bench, lives_on):
    """A sum takes over its operand's memory, unless that is read again afterwards."""
    rng = np.random.default_rng(3)
    g = GraphBuilder()
    wei = g.constant((rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32), name="w")

    def conv(value, name):
        return g.node(Conv(pads=(1, 1, 1, 1)), value, wei, outputs=[name])

    a = conv(g.input("x", "float32", (1, 16, 9, 9)), "a")
    s = g.node(Add(), conv(conv(a, "b"), "c"), a, outputs=["s"])
    g.node(Add(), conv(s, "d"), a if lives_on else s, outputs=["y"])
    graph = g.graph(["y"])
    data = rng.standard_normal((1, 16, 9, 9)).astype(np.float32)
    executable = bench.executable(graph, fuse=True)
    assert (executable.memory.storage["s"] == "a") is not lives_on
    np.testing.assert_allclose(bench.run_twice(executable, [data])[0], reference(bench, graph, data), rtol=1e-4, atol=1e-5)


def test_unknown_layouts_have_no_token():
    desc = library().strided((2, 3, 4, 5), (1, 2, 6, 24))
    assert token_of(desc) is None
    assert Layout("nChw16c") in tokens(4)


COPIES = {
    "Split": (Split(axis=1), [(2, 7)], [np.array([3, 4])], 2),
    "Split along the last": (Split(axis=-1), [(2, 7)], [np.array([2, 4])], 2),
    "Slice": (Slice(), [(2, 7)], [np.array([5, 1]), np.array([0, 9]), np.array([1, -1]), np.array([-2, 3])], 1),
    "Concat": (Concat(axis=1), [(2, 3), (2, 4)], [], 1),
    "Concat of short rows": (Concat(axis=1), [(70, 2), (70, 0), (70, 1)], [], 1),
    "Concat of rows": (Concat(axis=-2), [(2, 3), (2, 3)], [], 1),
}


@pytest.mark.parametrize("rank", SPATIAL)
@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_copies_in_every_configuration(name: str, rank: int, dtype: type) -> None:
    """Channels last too, which values of 8 bits have between convolutions."""
    op, shapes, parameters, count = COPIES[name]
    rng = np.random.default_rng(rank)
    arrays = [rng.integers(0, 256, (*shape, *(6,) * (rank - 2))).astype(dtype) for shape in shapes]
    wanted = op.reference(*arrays, *parameters)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    given = [*arrays, *parameters]
    names = [f"i{i}" for i in range(len(given))]
    node = TypedNode(
        Node("n", op, tuple(names), tuple(f"o{i}" for i in range(count))),
        tuple(_typed(a, i >= len(arrays)) for i, a in enumerate(given)),
        tuple(_typed(a, False) for a in wanted),
    )
    kernel = next(k for k in KernelTable("dovetail_cpu_onednn.kernels", ("dovetail_ops_onnx",))[op] if isinstance(k, StridedCopy))
    found = kernel.configurations(node)
    assert [config.outputs[0] for config in found] == [PLAIN, BYXF]
    for config in found:
        relaid = [
            None if i >= len(arrays) else t.with_layout(layout)
            for i, (t, layout) in enumerate(zip(node.inputs, config.inputs, strict=True))
        ]
        results = [t.with_layout(layout) for t, layout in zip(node.outputs, config.outputs, strict=True)]
        held = {
            n: a if t is None else np.ascontiguousarray(a.transpose(t.layout.order(rank)))
            for n, a, t in zip(names, given, relaid, strict=True)
        }
        held |= {f"o{i}": np.empty(t.memory_dims, dtype) for i, t in enumerate(results)}
        placed = replace(node, inputs=tuple(t or one for t, one in zip(relaid, node.inputs, strict=True)), outputs=tuple(results))
        for call in kernel.bind(placed, held.__getitem__):
            call()
        for i, (array, t) in enumerate(zip(wanted, results, strict=True)):
            np.testing.assert_array_equal(held[f"o{i}"], array.transpose(t.layout.order(rank)))


def _typed(array: np.ndarray, known: bool) -> TensorType:
    return TensorType(DType.of(array.dtype), array.shape, array if known else None)


@pytest.mark.parametrize("zero", [7, 8])
def test_layouts_of_quantize_linear(zero):
    """oneDNN computes quotients in its reference where channels are in blocks."""
    x, scale, point = (
        TensorType.of(array, known=True) for array in (np.zeros((1, 16, 8, 6), "f"), np.float32([0.1]), np.int8([zero]))
    )
    node = Node("n", QuantizeLinear(), ("x", "scale", "zero"), ("y",))
    found = Quantize().configurations(TypedNode(node, (x, scale, point), (x.with_dtype(DType.INT8),)))
    assert {PLAIN, BYXF} <= {config.inputs[0] for config in found}
    assert not any(config.inputs[0].block or config.outputs[0].block for config in found)


@pytest.mark.parametrize(("dims", "accepted"), [((2, 3, 5, 4), True), ((1,), True), ((3, 1, 1), False)])
def test_ufuncs_take_channels_last(bench, dims, accepted):
    """Numbers of the result's shape, or a single one, as the sums of two convolutions of bytes are; not one for each channel."""
    rng = np.random.default_rng(4)
    given = [rng.integers(-99, 99, one).astype(np.int32) for one in ((2, 3, 5, 4), dims)]
    graph, feeds = bench.single(Mul(), given)
    graph = graph.replace(types={n: t.with_layout(BYXF) if t.dims == (2, 3, 5, 4) else t for n, t in graph.types.items()})
    node = TypedNode.of(graph.nodes[0], graph)
    assert any(config.fits(node) for config in bench.device.configurations(node)) is accepted
    if accepted:
        last = [a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for a in feeds]
        (got,) = bench.device.compile(graph, {}).create_request().run(last)
        np.testing.assert_array_equal(got.reshape(2, 5, 4, 3).transpose(0, 3, 1, 2), given[0] * given[1])
