"""Host kernels of operators on ONEDNN: blocked layouts without a reorder, memory taken over, other data types."""

from itertools import pairwise

import numpy as np
import pytest

import dovetail
from dovetail.device import Reason
from dovetail.op import ANY, FLOATS, NHWC, PLAIN, DType, HostConfig, HostKernel, Layout, Operator, PortConfig
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.max_pool import MaxPool

DEVICES = sorted({name.split(".")[0] for name in dovetail.Core(config=False).available_devices})
"""Those of ONEDNN, NUMPY and OPENCL that are installed."""


class InBlocks(HostKernel):
    """Slopes filled up to whole blocks. Writes rubbish past the last channel, which must not matter.

    Channels together (NHWC) are a single block: what oneDNN's convolutions of less than four channels take.
    """

    def configurations(self, op, inputs, outputs):
        found = []
        blocked = [Layout.of(f"nC{'dhw'[5 - inputs[0].rank :]}{block}c") for block in (16, 8)]
        for layout in [NHWC] if inputs[0].dims[1] < 4 else blocked:
            x, y = (PortConfig(DType.FLOAT32, layout, k) for k in (-1, 0 if op.in_place_too else -1))
            found.append(HostConfig((x, PortConfig(DType.FLOAT32, constant=True)), (y,)))
        return found

    def bind(self, op, config, inputs, outputs):
        (x, slope), (y,) = inputs, outputs
        block = config.inputs[0].layout.block or slope.size
        filled = np.full(-(-slope.size // block) * block, np.nan, np.float32)
        filled[: slope.size] = slope
        slopes = filled.reshape(1, -1, *(1,) * (x.ndim - 3), block)
        assert x.shape[-1] == block

        def run():
            np.copyto(y, np.where(x > 0, x, slopes * x))
            return y

        return run

    def execute(self, op, config, inputs, outputs):
        raise AssertionError("bind gives what runs")


class Everywhere(HostKernel):
    """The same on plain data."""

    def configurations(self, op, inputs, outputs):
        return [HostConfig.uniform(inputs, outputs)]

    def execute(self, op, config, inputs, outputs):
        slope = inputs[1].reshape(-1, *(1,) * (inputs[0].ndim - 2))
        np.copyto(outputs[0], np.where(inputs[0] > 0, inputs[0], slope * inputs[0]))


class ChannelPRelu(Operator):
    """x where it is positive, else slope[c] x."""

    domain = "test.host"
    inputs = ("X: T", "slope: T")
    types = {"T": FLOATS}
    kernels = (InBlocks(), Everywhere())
    in_place_too: bool = False

    def reference(self, X, slope):
        return np.where(X > 0, X, slope.reshape(-1, *(1,) * (X.ndim - 2)) * X)


def network(rng, middle, channels, rank):
    """Convolution - what `middle` makes of it - convolution, its float64 result, and an input."""
    spatial = {3: (17,), 4: (9, 7), 5: (5, 6, 4)}[rank]
    weights = [rng.standard_normal((channels, c, *(3,) * (rank - 2))).astype(np.float32) / 8 for c in (16, channels)]
    slope = rng.uniform(-1, 2, channels).astype(np.float32)
    pads = (1,) * (2 * (rank - 2))
    g = dovetail.GraphBuilder()
    value = g.node(Conv(pads=pads), g.input("x", "float32", (2, 16, *spatial)), g.constant(weights[0]), name="c0")
    value = middle(g, value, g.constant(slope))
    g.node(Conv(pads=pads), value, g.constant(weights[1]), outputs=["y"], name="c1")
    x = rng.standard_normal((2, 16, *spatial)).astype(np.float32)

    def expected(function):
        first = Conv(pads=pads).reference(x.astype(np.float64), weights[0].astype(np.float64))
        return Conv(pads=pads).reference(function(first, slope.astype(np.float64)), weights[1].astype(np.float64))

    return g.model(["y"]), x, expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("channels", "rank"), [(3, 4), (16, 4), (17, 4), (33, 4), (17, 3), (17, 5)])
def test_prelu_between_convolutions(core, device, channels, rank):
    """The advice of 2018: a custom PReLU that takes the convolution's own layout costs no reorder, odd channels included."""
    for shared in (False, True):
        op = ChannelPRelu(in_place_too=shared)
        model, x, expected = network(
            np.random.default_rng(channels), lambda g, v, s, op=op: g.node(op, v, s, name="p"), channels, rank
        )
        compiled = core.compile_model(model, device)
        want = expected(op.reference)
        for _ in range(2):
            np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
        (node,) = (n for n in compiled.report().nodes if n.name == "p")
        assert node.kernel == ("in_blocks" if device == "ONEDNN" or channels == 3 else "everywhere") or device == "OPENCL"
        if device == "ONEDNN":
            kernels = [n.kernel for n in compiled.report().nodes if n.name in ("c0", "c1")]
            outer = sum(n.name.startswith(("reorder:x@", "reorder:y@")) for n in compiled.report().nodes)
            assert compiled.report().reorders == outer, [n.name for n in compiled.report().nodes]
            assert all("ref" not in k and "gemm" not in k for k in kernels), kernels


def test_blocks_are_refused_where_nothing_lies_so(core):
    model, _, _ = network(np.random.default_rng(0), lambda g, v, s: g.node(ChannelPRelu(), v, s, name="p"), 16, 4)
    (node,) = (n for n in core.compile_model(model, "NUMPY").report().nodes if n.name == "p")
    refusals = dict(node.refusals)
    assert refusals["in_blocks"].reason is Reason.CONFIGURATION
    assert "layout nChw16c, and the device keeps no float32 in blocks of 16" in refusals["in_blocks"].detail


class Anyhow(HostKernel):
    """Adds one; the array has the value's shape in memory."""

    def configurations(self, op, inputs, outputs):
        return [HostConfig.uniform(inputs, outputs, ANY, in_place=0)]

    def execute(self, op, config, inputs, outputs):
        op.seen.add(inputs[0].shape)
        np.add(inputs[0], 1, out=outputs[0])


class PlusOne(Operator):
    """x + 1"""

    domain = "test.host"
    kernels = (Anyhow(),)

    def __post_init__(self):
        object.__setattr__(self, "seen", set())

    def reference(self, X, *_):
        return X + 1


@pytest.mark.parametrize("channels", [16, 17])
def test_elementwise_kernels_take_any_layout(core, channels):
    """Elements past the last channel are set to zero again: the pooling and convolution behind would see it."""
    op = PlusOne()

    def middle(g, value, slope):
        return g.node(MaxPool(kernel_shape=(1, 1)), g.node(op, value, name="p"), name="m")

    model, x, expected = network(np.random.default_rng(channels), middle, channels, 4)
    compiled = core.compile_model(model, "ONEDNN")
    np.testing.assert_allclose(compiled({"x": x})["y"], expected(lambda v, s: v + 1), rtol=1e-4, atol=1e-4)
    (seen,) = op.seen
    assert len(seen) in (4, 5)
    types = [n.name for n in compiled.report().nodes if n.op.endswith("Reorder")]
    assert all(name.startswith(("reorder:x@", "reorder:y@")) for name in types), types


class Broadcasting(HostKernel):
    """The slopes have the layout of the data, whichever that is."""

    def configurations(self, op, inputs, outputs):
        return [HostConfig.uniform(inputs, outputs, ANY)]

    def execute(self, op, config, inputs, outputs):
        np.copyto(outputs[0], np.where(inputs[0] > 0, inputs[0], inputs[1] * inputs[0]))


class PRelu4(Operator):
    """x where it is positive, else slope x, the slope being [1, C, 1, 1] or [1, 1, 1, 1]."""

    domain = "test.host"
    inputs = ("X", "slope")
    kernels = (Broadcasting(),)

    def reference(self, X, slope):
        return np.where(X > 0, X, slope * X)


@pytest.mark.parametrize(("count", "reorders"), [(17, 2), (1, 4)])
def test_parameters_in_any_layout(core, count, reorders):
    """Slopes for each channel are in blocks like the data; a single one would be filled up, so nothing is blocked then."""
    op = PRelu4()
    slope = np.linspace(-1, 2, count, dtype=np.float32).reshape(1, count, 1, 1)

    def middle(g, value, _):
        value = g.node(ChannelPRelu(), value, g.constant(np.full(17, 0.5, np.float32)))
        value = g.node(op, value, g.constant(slope), name="p")
        return g.node(ChannelPRelu(), value, g.constant(np.full(17, 0.5, np.float32)))

    model, x, expected = network(np.random.default_rng(6), middle, 17, 4)
    compiled = core.compile_model(model, "ONEDNN")
    half = np.full(17, 0.5)
    prelu = ChannelPRelu().reference
    want = expected(lambda v, _: prelu(op.reference(prelu(v, half), slope.astype(np.float64)), half))
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
    assert compiled.report().reorders == reorders


class Pixels(HostKernel):
    """Sums over the channels, which are adjacent in NHWC, of any data type."""

    def configurations(self, op, inputs, outputs):
        x, y = inputs[0].dtype, outputs[0].dtype
        return [HostConfig((PortConfig(x, NHWC),), (PortConfig(y, NHWC),))]

    def execute(self, op, config, inputs, outputs):
        np.cumsum(inputs[0], axis=-1, out=outputs[0])


class Running(Operator):
    """Running sums over the channels."""

    domain = "test.host"
    kernels = (Pixels(),)

    def reference(self, X):
        return np.cumsum(X, axis=1, dtype=X.dtype)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float64"])
def test_layouts_of_every_data_type(core, dtype):
    """oneDNN's reorder is for float32; other data types are moved in the same places of the plan."""
    x = np.random.default_rng(1).integers(0, 9, (2, 5, 3, 4)).astype(dtype)
    g = dovetail.GraphBuilder()
    g.node(Running(), g.node(Running(), g.input("x", dtype, x.shape)), outputs=["y"])
    compiled = core.compile_model(g.model(["y"]), "ONEDNN")
    np.testing.assert_array_equal(compiled({"x": x})["y"], x.cumsum(1).cumsum(1).astype(dtype))
    assert [n.kernel for n in compiled.report().nodes][1:3] == ["pixels", "pixels"]
    assert compiled.report().reorders == 2


def test_a_value_that_is_read_again_is_copied_first(core):
    """A kernel that works in its input's memory, where something else still needs the input."""
    model, x, expected = network(
        np.random.default_rng(5), lambda g, v, s: g.node(ConvTranspose(), g.node(PlusOne(), v), _identity(g)), 16, 4
    )
    g = dovetail.GraphBuilder()
    source = g.input("x", "float32", (2, 3))
    g.node(PlusOne(), source, outputs=["y"])
    compiled = core.compile_model(g.model(["y", source]), "ONEDNN")
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    given.flags.writeable = False
    found = compiled({"x": given})
    np.testing.assert_array_equal(found[0], given + 1)
    np.testing.assert_array_equal(found[1], given)
    np.testing.assert_allclose(
        core.compile_model(model, "ONEDNN")({"x": x})["y"], expected(lambda v, s: v + 1), rtol=1e-4, atol=1e-4
    )


def _identity(g):
    return g.constant(np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1))


@pytest.mark.parametrize("dims", [(1, 10, 37, 9), (1, 21, 300), (1, 12, 3, 14, 5), (2, 10, 7, 9), (1, 16, 7, 9), (1, 5, 7, 9)])
def test_out_of_blocks(bench, dims):
    """Blocks of channels come back plain, beside other values in the arena; of batch 1 whole blocks of them, which is faster."""
    g, rng = dovetail.GraphBuilder(), np.random.default_rng(sum(dims))
    feeds = [rng.standard_normal(dims).astype(np.float32) for _ in range(3)]
    slope = rng.uniform(-1, 2, dims[1]).astype(np.float32)
    slopes = g.constant(slope)
    outputs = [g.node(ChannelPRelu(), g.input(f"x{i}", "float32", dims), slopes) for i in range(3)]
    executable = bench.executable(g.graph(outputs))
    for x, y in zip(feeds, bench.run_twice(executable, feeds), strict=True):
        np.testing.assert_array_equal(y, ChannelPRelu().reference(x, slope))
    moves = [
        p.node.node for p in executable.placements if p.node.op.key == "dovetail::Reorder" and p.node.outputs[0].layout == PLAIN
    ]
    stages = [executable.prepared[node.name][0].stage for node in moves]
    starts = [executable.memory.offsets[node.outputs[0]] for node in moves]
    ends = [start + library().nbytes(stage.arguments[1].desc) for start, stage in zip(starts, stages, strict=True)]
    assert all(a <= b for a, b in pairwise([v for span in sorted(zip(starts, ends, strict=True)) for v in span]))
    assert len(moves) == 3
    assert max(ends) <= executable.memory.peak
    assert {stage.desc.implementation for stage in stages} == {"jit:blk"} or dims[0] == 2 or dims[1] == 5


@pytest.mark.parametrize(
    ("shapes", "axis", "kernel"),
    [
        ([(1, 100, 4), (1, 100, 1)], -1, "copy"),
        ([(8, 9, 2, 8), (8, 9, 1, 8), (8, 9, 2, 8)], 2, "copy"),
        ([(1, 100, 4), (1, 100, 17)], -1, "simple"),
        ([(1, 50, 4), (1, 50, 1)], -1, "simple"),
    ],
)
def test_concat_of_many_short_rows_is_copied(bench, shapes, axis, kernel):
    arrays = [np.random.default_rng(i).random(shape, np.float32) for i, shape in enumerate(shapes)]
    graph, feeds = bench.single(Concat(axis=axis), arrays)
    executable = bench.executable(graph)
    assert executable.reports[0].kernel.startswith(kernel)
    np.testing.assert_array_equal(bench.run_twice(executable, feeds)[0], np.concatenate(arrays, axis))
