"""Memory layouts on OPENCL: any mixture gives what plain memory gives on NUMPY, with the fewest reorders; the reorder kernel."""

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DType, Node, Reorder, TypedNode
from dovetail.graph import Graph, GraphBuilder, TensorType
from dovetail.op import FYXB, NHWC, PLAIN, YXFB, Layout, OpenCLKernel, Operator
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.resize import Resize
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.where import Where

pytestmark = pytest.mark.exhaustive(0.13)  # each test compiles programs

DIMS = (2, 3, 4, 5)
KINDS = {"PLAIN": PLAIN, "NHWC": NHWC, "YXFB": YXFB, "FYXB": FYXB}


@pytest.fixture
def name(info: Any) -> str:
    """Each device's."""
    return str(info.name)


def mixed(inputs: Sequence[Any]) -> Any:
    """A weighted sum; the weights of the elements depend on their place, so a wrong layout shows."""
    weights = np.arange(np.prod(DIMS), dtype=np.float32).reshape(DIMS) % 7
    return sum((i + 1) * a for i, a in enumerate(inputs)) * np.float32(0.5) + weights


def place(name: str) -> str:
    """The C expression of an element's index in a layout."""
    text = "0"
    for d in KINDS[name].order(4):
        text = f"({text} * {DIMS[d]} + {'bfyx'[d]})"
    return text


@functools.cache
def mix(*layouts: str) -> Operator:
    """An operator whose kernel takes its inputs and gives its output in these layouts; its class is made once."""
    *given, made = layouts
    parameters = "".join(f"__global const float* p{i}, " for i in range(len(given)))
    terms = " + ".join(f"{i + 1} * p{i}[{place(layout)}]" for i, layout in enumerate(given))
    source = f"""__kernel void weighted({parameters}__global float* out) {{
      const int o = get_global_id(0), x = o % 5, y = o / 5 % 4, f = o / 20 % 3, b = o / 60;
      out[{place(made)}] = ({terms}) * 0.5f + o % 7;
    }}"""

    ports = {**{f"X{i}": layout for i, layout in enumerate(given)}, "Y": made}

    class Mix(Operator):
        """A weighted sum."""

        domain = "test.layouts"
        inputs = tuple(f"X{i}" for i in range(len(given)))
        kernels = (OpenCLKernel(source=source, entry="weighted", layouts=ports),)

        def infer(self, *types: Any) -> Any:
            return types[0].with_shape(types[0].shape)

        def reference(self, *arrays: Any) -> Any:
            return mixed(arrays)

    return Mix()


class Halves(Operator):
    """(X + Y) / 2 by a kernel that takes any layout."""

    domain = "test.layouts"
    inputs = ("X", "Y")
    outputs = ("Z",)
    kernels = (
        OpenCLKernel(
            source="__kernel void halves(__global const float* x, __global const float* y, __global float* z) "
            "{ const int o = get_global_id(0); z[o] = 0.5f * (x[o] + y[o]); }",
            entry="halves",
            layouts={"X": "ANY", "Y": "ANY", "Z": "ANY"},
        ),
    )

    def infer(self, X: Any, Y: Any) -> Any:
        return X.with_shape(X.shape)

    def reference(self, X: Any, Y: Any) -> Any:
        return (X + Y) * np.float32(0.5)


def elementwise(g: GraphBuilder, choose: random.Random, values: list[str]) -> str:
    scalar = g.constant(np.float32(choose.choice([0.5, 2, -1])).reshape(choose.choice([(), (1,), (1, 1, 1, 1)])))
    x, y = choose.choice(values), choose.choice(values)
    condition = g.constant(np.random.default_rng(3).random(DIMS) < 0.5)
    built = [
        lambda: g.node(Relu(), x),
        lambda: g.node(Sigmoid(), x),
        lambda: g.node(Add(), x, y),
        lambda: g.node(Sub(), scalar, x),
        lambda: g.node(Mul(), x, scalar),
        lambda: g.node(Mul(), x, g.constant(np.float32([[[1]], [[0.5]], [[2]]]))),  # one for each channel: plain or NHWC
        lambda: g.node(Add(), g.constant(np.random.default_rng(4).random((2, 1, 4, 5), np.float32)), x),  # for each pixel
        lambda: g.node(Sub(), x, g.constant(np.random.default_rng(4).random((3, 4, 1), np.float32))),  # plain
        lambda: g.node(Transpose(perm=TO_FIRST[4]), g.node(Relu(), g.node(Transpose(perm=TO_LAST[4]), x))),
        lambda: as_line(g, x),
        lambda: cut_and_joined(g, choose, x, y),
        lambda: resized(g, choose, x),
        lambda: g.node(Max(), x, y, scalar),
        lambda: g.node(Where(), condition, x, y),
        lambda: g.node(Cast(to=DType.FLOAT32), g.node(Cast(to=DType.INT32), x)),
        lambda: g.node(Halves(), x, y),
    ]
    return str(choose.choice(built)())


TO_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
TO_FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


def as_line(g: GraphBuilder, x: str) -> str:
    """Sigmoid of the image with its pixels as rows of channels."""
    rows = g.node(Transpose(perm=TO_LAST[3]), g.node(Reshape(), x, g.constant(np.int64([2, 3, 20]))))
    columns = g.node(Transpose(perm=TO_FIRST[3]), g.node(Sigmoid(), rows))
    return str(g.node(Reshape(), columns, g.constant(np.int64(DIMS))))


def cut_and_joined(g: GraphBuilder, choose: random.Random, x: str, y: str) -> str:
    """Of two values by one axis: some of one, and the rest of the other by way of Split."""
    axis = choose.randrange(4)
    cut = choose.randrange(1, DIMS[axis])
    limits = (g.constant(np.int64([n])) for n in (0, cut, axis, 1))
    parts = g.node(Split(axis=axis), y, g.constant(np.int64([cut, DIMS[axis] - cut])), outputs=2)
    return str(g.node(Concat(axis=axis), g.node(Slice(), x, *limits), parts[1]))


def resized(g: GraphBuilder, choose: random.Random, x: str) -> str:
    """To twice the pixels and back, with something for each channel and pixel added."""
    mode, axes = choose.choice(["nearest", "linear"]), choose.choice([(2, 3), (3,), (1, 2, 3)])
    larger = [2 * size if axis in axes else size for axis, size in enumerate(DIMS)]
    found = g.node(Resize(mode=mode), x, "", "", g.constant(np.int64(larger)))
    found = g.node(Add(), found, g.constant(np.random.default_rng(5).random((larger[1], 1, 1), np.float32)))
    return str(g.node(Resize(mode=mode), found, "", "", g.constant(np.int64(DIMS))))


def random_model(seed: int) -> Any:
    choose = random.Random(seed)
    g = GraphBuilder()
    values = [g.input("x", "float32", DIMS), g.constant(np.random.default_rng(seed).random(DIMS, np.float32), name="c")]
    for _ in range(1 + seed % 8):
        if choose.random() < 0.5:
            reads = choose.sample(values, k=choose.randint(1, 2))
            values.append(g.node(mix(*(choose.choice([*KINDS]) for _ in (*reads, "out"))), *reads))
        else:
            values.append(elementwise(g, choose, values[-4:]))
    return g.model([*dict.fromkeys((values[-1], choose.choice(values[2:])))])


@pytest.mark.parametrize("block", range(6))
def test_any_mixture_of_layouts_gives_what_plain_memory_gives(core: dovetail.Core, name: str, block: int) -> None:
    """120 graphs, with fusion and without; most of them have reorders."""
    reorders = 0
    for seed in range(block * 20, block * 20 + 20):
        x = np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)
        options = {"FUSION": seed % 2 == 0}
        plain = core.compile_model(random_model(seed), "NUMPY", options)
        model = core.compile_model(random_model(seed), name, options)
        assert plain.report({"x": DIMS}).reorders == 0
        reorders += model.report({"x": DIMS}).reorders > 0
        assert {n.device for n in model.report({"x": DIMS}).nodes} <= {name}
        expected, results = plain({"x": x}), model({"x": x})
        for index in range(len(expected)):
            np.testing.assert_allclose(results[index], expected[index], rtol=1e-5, atol=1e-5, err_msg=f"seed {seed}")
    assert reorders > 5


@pytest.mark.parametrize(
    ("nodes", "reorders"),
    [
        (["PLAIN", Relu(), "PLAIN"], 0),
        ([Halves(), Relu()], 0),
        (["NHWC"], 2),
        (["NHWC", Relu(), "NHWC"], 2),
        (["NHWC", Relu(), Sigmoid(), Halves(), "NHWC"], 2),
        (["PLAIN", "NHWC", Halves(), "NHWC", "PLAIN"], 2),
        (["NHWC", "YXFB", Relu(), "YXFB"], 3),
        (["NHWC", "PLAIN", "NHWC"], 4),
        (["FYXB", Relu(), "NHWC", Relu(), "PLAIN"], 3),
    ],
)
def test_as_many_reorders_as_needed(
    core: dovetail.Core, name: str, device: OpenCLDevice, nodes: list[Any], reorders: int
) -> None:
    g = GraphBuilder()
    y = g.input("x", "float32", DIMS)
    x = np.random.default_rng(1).standard_normal(DIMS).astype(np.float32)
    wide = x.astype(np.float64)
    for node in nodes:
        if isinstance(node, str):
            y, wide = g.node(mix(node, node), y), mixed([wide])
        elif isinstance(node, Halves):
            y = g.node(node, y, y)
        else:
            y, wide = g.node(node, y), np.maximum(wide, 0) if isinstance(node, Relu) else 1 / (1 + np.exp(-wide))
    for queue in ("IN_ORDER", "OUT_OF_ORDER")[: 1 + device.caps.out_of_order]:
        model = core.compile_model(g.model([y]), name, {"QUEUE": queue})
        np.testing.assert_allclose(model({"x": x})[0], wide, rtol=1e-5)
        assert model.report().reorders == reorders
        moved = [n for n in model.report().nodes if n.op == "dovetail::Reorder"]
        assert [(n.kernel, n.provider.split()[0]) for n in moved] == [("reorder", "dovetail-gpu-opencl")] * reorders


def test_channels_go_to_the_end_and_back_in_place(core: dovetail.Core, name: str, rng: np.random.Generator) -> None:
    """Between two kernels of NHWC: by transposes of the image and of its line of pixels, of which nothing is launched."""
    g = GraphBuilder()
    made = g.node(mix("PLAIN", "NHWC"), g.input("x", "float32", DIMS))
    scaled = g.node(Mul(), g.node(Transpose(perm=TO_LAST[4]), made), g.constant(np.float32([1, -2, 3])))
    found = as_line(g, g.node(Transpose(perm=TO_FIRST[4]), scaled))
    found = g.node(Add(), found, made)  # what was seen otherwise is read again
    model = core.compile_model(g.model([g.node(mix("NHWC", "PLAIN"), found)]), name, {"FALLBACK": False})
    kernels = [n.kernel for n in model.report().nodes if n.op.rpartition("::")[2] in ("ViewedTranspose", "Reshape", "Reorder")]
    assert len(kernels) >= 6
    assert set(kernels) == {"view"}
    x = rng.standard_normal(DIMS).astype(np.float32)
    wide = mixed([x]).astype(np.float64)
    scaled = wide * np.float64([1, -2, 3])[:, None, None]
    np.testing.assert_allclose(model({"x": x})[0], mixed([1 / (1 + np.exp(-scaled)) + wide]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", [(2, 3, 1, 1), (1, 7, 1, 1), (3, 1, 4, 5)])
def test_a_reorder_that_moves_nothing_is_a_view(bench: Any, device: OpenCLDevice, dims: tuple[int, ...]) -> None:
    x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    (got,) = bench.run(device, reordering(dims, DType.FLOAT32, NHWC, PLAIN), [x])
    np.testing.assert_array_equal(got, x)
    graph, moved = reordering(dims, DType.FLOAT32, NHWC, PLAIN), reordering((2, 3, 4, 1), DType.FLOAT32, NHWC, PLAIN)
    assert [report.kernel for report in device.compile(graph, {}).reports] == ["view"] * 3
    assert [report.kernel for report in device.compile(moved, {}).reports] == ["reorder", "reorder", "view"]


def test_a_constant_is_laid_out_at_its_upload(core: dovetail.Core, name: str) -> None:
    """One constant in three layouts, one of them plain."""
    value = np.random.default_rng(2).random(DIMS, np.float32)
    g = GraphBuilder()
    y, c = g.input("x", "float32", DIMS), g.constant(value)
    for layout in ("NHWC", "YXFB", "PLAIN"):
        y = g.node(mix("PLAIN", layout, "PLAIN"), y, c)
    model = core.compile_model(g.model([y]), name)
    assert model.report().reorders == 0
    x = wide = np.random.default_rng(3).random(DIMS, np.float32)
    for _ in range(3):
        wide = mixed([wide, value])
    np.testing.assert_allclose(model({"x": x})[0], wide, rtol=1e-5)


class Pixels(Operator):
    """2 x by way of an image in NHWC: the channels are the columns."""

    domain = "test.layouts"
    kernels = (
        OpenCLKernel(
            source="__kernel void pixels(__read_only image2d_array_t x, __global float* y) {"
            "const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;"
            """
              const int c = get_global_id(0), w = get_global_id(1), bh = get_global_id(2);
              y[(bh * get_global_size(1) + w) * get_global_size(0) + c] = 2 * read_imagef(x, s, (int4)(c, w, bh, 0)).x;
            }""",
            entry="pixels",
            layouts={"X": "NHWC", "Y": "NHWC"},
            images={"X": "image2d_array_t"},
            global_size=("F", "X", "B*Y"),
        ),
    )

    def reference(self, X: Any) -> Any:
        return X * np.float32(2)


def test_an_image_lies_as_its_layout_says(core: dovetail.Core, name: str) -> None:
    g = GraphBuilder()
    model = core.compile_model(g.model([g.node(Pixels(), g.input("x", "float32", DIMS))]), name)
    x = np.random.default_rng(3).random(DIMS, np.float32)
    np.testing.assert_array_equal(model({"x": x})[0], 2 * x)
    assert [n.kernel for n in model.report().nodes] == ["reorder", "pixels", "reorder"]


# --- the reorder kernel -------------------------------------------------------------------------------------------------


def reordering(dims: tuple[int, ...], dtype: DType, source: Layout, target: Layout) -> Graph:
    """From `source` to `target`; plain memory at both ends, so two more reorders where these are not plain."""
    types = {
        "x": TensorType(dtype, dims),
        "a": TensorType(dtype, dims, layout=source),
        "b": TensorType(dtype, dims, layout=target),
        "y": TensorType(dtype, dims),
    }
    steps = itertools.pairwise("xaby")
    nodes = tuple(Node(f"{f}{t}", Reorder(), (f,), (t,)) for f, t in steps)
    return Graph(nodes, ("x",), ("y",), {}, types)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("dims", [(2, 3, 4, 5), (1, 64, 7, 9), (3, 1, 33, 1), (2, 40, 1, 35), (0, 3, 4, 5), (17, 33, 8, 8)])
def test_every_permutation(kind_device: Callable[[str], Any], bench: Any, kind: str, dims: tuple[int, ...]) -> None:
    device = kind_device(kind)
    x = np.random.default_rng(3).integers(0, 100, dims).astype(np.int32)
    for source, target in itertools.permutations(KINDS.values(), 2):
        (got,) = bench.run(device, reordering(dims, DType.INT32, source, target), [x])
        np.testing.assert_array_equal(got, x, err_msg=f"{source} to {target}")


def stored(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    return np.ascontiguousarray(array.transpose(layout.order(array.ndim)))


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(
    ("dtype", "dims"),
    [(dtype, (2, 40, 6, 7)) for dtype in ("int8", "bool", "float16", "int64", "complex128")]
    + [("float32", dims) for dims in ((2, 3, 4), (2, 3, 2, 3, 2), (2, 3, 1, 2, 3, 2))],
)
def test_what_lies_in_memory(kind_device: Callable[[str], Any], bench: Any, kind: str, dtype: str, dims: tuple[int, ...]) -> None:
    """NHWC of every rank and data type: the result is read as if it were plain, so that its memory shows."""
    device = kind_device(kind)
    x = np.random.default_rng(3).integers(0, 2, dims).astype(dtype)
    plain, nhwc = TensorType(DType(dtype), dims), TensorType(DType(dtype), dims, layout=NHWC)
    for types, want in (
        ({"x": plain, "y": nhwc}, stored(x, NHWC)),
        ({"x": nhwc, "y": plain}, x.reshape(nhwc.memory_dims).transpose(np.argsort(nhwc.order))),
    ):
        graph = Graph((Node("move", Reorder(), ("x",), ("y",)),), ("x",), ("y",), {}, types)
        (got,) = bench.run(device, graph, [x])
        np.testing.assert_array_equal(got.ravel(), want.ravel())


def test_gpus_transpose_by_tiles(kind_device: Callable[[str], Any]) -> None:
    """Every pair of layouts that is a transposition of large matrices; what is not goes by strided copy."""
    device = kind_device("GPU")

    def file(source: str, target: str, channels: int) -> str:
        graph = reordering((34, channels, 8, 9), DType.FLOAT32, KINDS[source], KINDS[target])
        typed = TypedNode.of(graph.nodes[1], graph)
        (kernel,) = [k for k in device.kernels(typed) if k.name == "reorder"]
        (launch,) = kernel.launches(typed)
        return str(launch.file)

    assert file("PLAIN", "NHWC", 15) == "copy.cl"
    strided = {pair for pair in itertools.permutations(KINDS, 2) if file(*pair, 33) == "copy.cl"}
    runs_of_b = {("YXFB", "FYXB"), ("FYXB", "YXFB")}
    assert strided == {("PLAIN", "YXFB"), ("YXFB", "PLAIN"), ("NHWC", "FYXB"), ("FYXB", "NHWC"), *runs_of_b}


@pytest.mark.parametrize("made", ["NHWC", "PLAIN"])
def test_normalizations_keep_channels_innermost(made: str, core: dovetail.Core, name: str, rng: np.random.Generator) -> None:
    """With a chain behind, whose operands are as large as the result, one for each channel, and one for each column."""
    given = {n: rng.uniform(0.5, 2, (3,)).astype(np.float32) for n in ("scale", "b", "mean", "var")}
    factors, addends = rng.standard_normal((3, 1, 1)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    g = GraphBuilder()
    x, y = g.input("x", "float32", DIMS), g.input("y", "float32", DIMS)
    first = g.node(mix("PLAIN", made), x)
    found = g.node(BatchNormalization(epsilon=1e-3), first, *(g.constant(a) for a in given.values()))
    found = g.node(Mul(), found, g.constant(factors))
    found = g.node(Add(), found, g.constant(addends))
    found = g.node(Relu(), g.node(Add(), found, g.node(mix("PLAIN", made), y)))
    compiled = core.compile_model(g.model([g.node(mix(made, "PLAIN"), found)]), name, {"FALLBACK": False})
    assert compiled.report().reorders == 0
    assert "batch_normalization" in {node.kernel for node in compiled.report().nodes}
    x, y = (rng.standard_normal(DIMS).astype(np.float32) for _ in "xy")
    scale, b, mean, var = (a.astype(np.float64)[:, None, None] for a in given.values())
    expected = (mixed([x]).astype(np.float64) - mean) / np.sqrt(var + 1e-3) * scale + b
    expected = mixed([np.maximum(expected * factors + addends + mixed([y]), 0)])
    np.testing.assert_allclose(compiled({"x": x, "y": y})[0], expected, rtol=1e-5, atol=1e-5)
