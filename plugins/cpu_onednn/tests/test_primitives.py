"""Each sort of primitive at odd sizes against its reference in float64, from inputs that are neither contiguous nor writable."""

import math
from itertools import product

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn import constants
from dovetail_cpu_onednn.kernels._resample import _agree, _places_of_onednn
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx._interpolation import resample
from dovetail_ops_onnx._resample import COORDINATES, NEAREST, Axis, Sampling
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool
from dovetail_ops_onnx.group_normalization import GroupNormalization, GroupNormalization_18
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.log_softmax import LogSoftmax
from dovetail_ops_onnx.lrn import LRN
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.p_relu import PRelu
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.resize import Resize
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.upsample import Upsample


def axes(*numbers):
    return np.array(numbers, np.int64)


def scales(*numbers):
    return np.array(numbers, np.float32)


SIX = (2, 6, 9, 7)
FLOORED = Resize(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
PRIMITIVES = {
    "conv_1d_dilated": (Conv(dilations=(3,), pads=(2, 3)), (2, 5, 17), [(7, 5, 3), (7,)]),
    "conv_3d_grouped": (Conv(group=3, pads=(1, 0, 1, 1, 1, 0), strides=(2, 1, 1)), (2, 6, 5, 6, 7), [(9, 2, 3, 3, 2), (9,)]),
    "conv_1d_depthwise": (Conv(group=6, dilations=(2,), pads=(2, 3), strides=(2,)), (2, 6, 17), [(6, 1, 3), (6,)]),
    "conv_1d_depthwise_same": (Conv(group=20, auto_pad="SAME_LOWER"), (3, 20, 40), [(20, 1, 8)]),
    "conv_3d_depthwise": (Conv(group=6, pads=(1,) * 6), (1, 6, 5, 4, 7), [(6, 1, 3, 3, 3)]),
    "conv_multiplied_depthwise": (Conv(group=6, pads=(1, 1, 1, 1)), SIX, [(12, 1, 3, 3), (12,)]),
    "conv_same_upper": (Conv(auto_pad="SAME_UPPER", strides=(2, 2)), SIX, [(5, 6, 3, 2)]),
    "conv_same_lower": (Conv(auto_pad="SAME_LOWER", strides=(2, 3)), SIX, [(5, 6, 4, 4)]),
    "conv_valid": (Conv(auto_pad="VALID"), SIX, [(5, 6, 3, 3)]),
    "deconv_grouped": (
        ConvTranspose(group=2, strides=(2, 3), pads=(1, 0, 0, 1)),
        SIX,
        [(6, 4, 3, 3), (8,)],
    ),
    "deconv_1d": (ConvTranspose(dilations=(2,), strides=(2,)), (3, 4, 7), [(4, 5, 3)]),
    "deconv_3d": (ConvTranspose(strides=(1, 2, 1)), (1, 3, 3, 4, 5), [(3, 4, 2, 2, 3)]),
    "matmul_broadcast": (MatMul(), (3, 1, 5, 7), [(4, 7, 6)]),
    "matmul_row": (MatMul(), (7,), [(7, 5)]),
    "max_pool_ceil": (MaxPool(kernel_shape=(3, 2), strides=(2, 2), ceil_mode=True, pads=(1, 0, 0, 1)), SIX, []),
    "max_pool_1d": (MaxPool(kernel_shape=(4,), strides=(4,), pads=(1, 0)), (1, 40, 103), []),
    "max_pool_of_few_channels": (MaxPool(kernel_shape=(3, 3), strides=(2, 2)), (2, 3, 29, 31), []),
    "max_pool_whole": (MaxPool(kernel_shape=(9, 7), pads=(0, 0, 1, 1), strides=(2, 2)), SIX, []),
    "max_pool_3d": (MaxPool(kernel_shape=(2, 2, 2), strides=(2, 1, 2)), (1, 3, 5, 4, 7), []),
    "average_pool_ceil": (AveragePool(kernel_shape=(3, 2), strides=(2, 2), ceil_mode=True, pads=(1, 0, 0, 1)), SIX, []),
    "average_pool_counts_pads": (AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True), SIX, []),
    "average_pool_whole": (AveragePool(kernel_shape=(9, 7)), SIX, []),
    "average_pool_one": (AveragePool(kernel_shape=(1, 1)), (2, 6, 1, 1), []),
    "average_pool_same": (AveragePool(kernel_shape=(4, 3), strides=(2, 2), auto_pad="SAME_UPPER"), SIX, []),
    "global_average_pool": (GlobalAveragePool(), (2, 5, 3, 4, 5), []),
    "global_average_pool_1d": (GlobalAveragePool(), (2, 5, 5000), []),
    "global_max_pool": (GlobalMaxPool(), SIX, []),
    "instance_normalization": (InstanceNormalization(epsilon=0.1), (3, 5, 9, 7), [(5,), (5,)]),
    "group_normalization": (GroupNormalization(num_groups=2), SIX, [(6,), (6,)]),
    "group_normalization_18": (GroupNormalization_18(num_groups=3), SIX, [(3,), (3,)]),
    "lrn": (LRN(size=5, alpha=0.5, bias=1.5), (2, 32, 5, 7), []),
    "prelu_channels": (PRelu(), SIX, [(6, 1, 1)]),
    "prelu_elements": (PRelu(), SIX, [SIX]),
    "prelu_one": (PRelu(), SIX, [(1,)]),
    "softmax": (Softmax(), (3, 5, 7), []),
    "softmax_rows_of_one": (Softmax(axis=1), (3, 5, 1), []),
    "log_softmax": (LogSoftmax(axis=-1), (3, 17), []),
    "reduce_mean": (ReduceMean(), SIX, [axes(2, 3)]),
    "reduce_mean_first": (ReduceMean(), SIX, [axes(0)]),
    "reduce_sum_channels": (ReduceSum(keepdims=False), SIX, [axes(1)]),
    "reduce_mean_apart": (ReduceMean(keepdims=False), SIX, [axes(0, 2)]),
    "nearest_up": (Resize(), SIX, [None, scales(1, 1, 2, 3)]),
    "nearest_sizes": (FLOORED, SIX, [None, None, axes(2, 6, 18, 14)]),
    "linear_up": (Resize(mode="linear"), SIX, [None, scales(1, 1, 2, 3)]),
    "linear_down": (Resize(mode="linear"), SIX, [None, None, axes(2, 6, 4, 5)]),
    "linear_3d": (Resize(mode="linear"), (1, 2, 3, 4, 5), [None, scales(1, 1, 2, 1, 3)]),
    "linear_1d": (Resize(mode="linear", coordinate_transformation_mode="pytorch_half_pixel"), (2, 3, 9), [None, scales(1, 1, 2)]),
    "upsample": (Upsample(), SIX, [scales(1, 1, 2, 2)]),
}
REFERENCES = {
    "nearest_down_halves": (Resize(), (2, 6, 8, 7), [None, None, axes(2, 6, 4, 7)]),
    "align_corners": (Resize(mode="linear", coordinate_transformation_mode="align_corners"), SIX, [None, scales(1, 1, 2, 3)]),
    "asymmetric": (Resize(mode="linear", coordinate_transformation_mode="asymmetric"), SIX, [None, scales(1, 1, 2, 3)]),
    "antialias": (Resize(mode="linear", antialias=True), SIX, [None, scales(1, 1, 0.5, 0.5)]),
    "cubic": (Resize(mode="cubic"), SIX, [None, scales(1, 1, 2, 2)]),
    "scale_that_gives_no_whole_number": (Resize(mode="linear"), SIX, [None, scales(1, 1, 1.3, 1.3)]),
    "channels": (Resize(), SIX, [None, scales(1, 2, 1, 1)]),
    "lrn_even": (LRN(size=4, alpha=0.5), (2, 32, 5, 7), []),
    "max_pool_dilated": (MaxPool(kernel_shape=(3, 2), dilations=(2, 3)), SIX, []),
    "average_pool_dilated": (AveragePool(kernel_shape=(3, 2), dilations=(2, 1)), SIX, []),
    "lrn_other_power": (LRN(size=5, alpha=0.5, beta=0.6), (2, 32, 5, 7), []),
    "softmax_first": (Softmax(axis=0), (3, 5, 7), []),
    "softmax_channels": (Softmax(axis=1), (2, 19, 9, 7), []),
    "log_softmax_channels": (LogSoftmax(axis=1), (2, 5, 9), []),
    "upsample_linear": (Upsample(mode="linear"), SIX, [scales(1, 1, 2, 2)]),
}


def arrays_of(name, shape, parameters):
    rng = np.random.default_rng(len(name))
    made = [(rng.standard_normal(p) / 2).astype(np.float32) if isinstance(p, tuple) else p for p in parameters]
    return [rng.standard_normal(shape).astype(np.float32), *made]


def awkward(array):
    """The same values with strides of their own, and read-only."""
    found = np.full(tuple(2 * size for size in array.shape), np.nan if array.dtype.kind == "f" else 1, array.dtype)
    view = found[(slice(None, None, -2),) * array.ndim]
    view[...] = array
    view.flags.writeable = False
    return view


def wide(array):
    return array.astype(np.float64) if array is not None and array.dtype == np.float32 else array


CASES = {**PRIMITIVES, **REFERENCES}
WITH_DATA = [name for name, (_, _, parameters) in CASES.items() if any(isinstance(p, tuple) for p in parameters)]
"""Those with parameters that may be computed too."""
FIXED_BATCH = (
    "reduce_mean_first",
    "reduce_mean_apart",
    "prelu_elements",
    "nearest_sizes",
    "linear_down",
    "matmul_broadcast",
    "matmul_row",
)


@pytest.mark.parametrize(("name", "constant"), [*((n, True) for n in CASES), *((n, False) for n in WITH_DATA)])
def test_primitives(core, bench, name, constant):
    op, shape, parameters = CASES[name]
    arrays = arrays_of(name, shape, parameters)
    fixed = [i for i, a in enumerate(arrays) if i and a is not None and (constant or not isinstance(parameters[i - 1], tuple))]
    graph = bench.single(op, arrays, constants=fixed)[0]
    typed = bench.typed(graph)
    kernel = bench.device.supports(TypedNode.of(typed.nodes[0], typed)).kernel
    assert (kernel == "ref") is (name in REFERENCES or (name == "prelu_one" and not constant)), kernel
    # The scales of resampling are numbers of float32, wherever the data is.
    kept = [a if isinstance(op, Resize | Upsample) and i else wide(a) for i, a in enumerate(arrays)]
    want = op.reference(*kept)
    want = want[0] if isinstance(want, tuple) else want
    compiled = core.compile_model(_model(graph), "ONEDNN")
    feeds = {f"x{i}": awkward(a) for i, a in enumerate(arrays) if a is not None and i not in fixed}
    for _ in range(2):
        np.testing.assert_allclose(compiled(feeds)["y"], want, rtol=1e-4, atol=1e-5)


def _model(graph):
    g = GraphBuilder()
    names = {name: g.input(name, t.dtype.value, t.shape) for name, t in ((n, graph.types[n]) for n in graph.inputs)}
    names |= {name: g.constant(value, name=name) for name, value in graph.constants.items()}
    (node,) = graph.nodes
    g.node(node.op, *(name and names[name] for name in node.inputs), outputs=["y"])
    return g.model(["y"])


@pytest.mark.parametrize("shape", [(2, 6, 13), SIX, (1, 3, 2, 5, 4), (2, 6, 1, 1), (5, 6)])
@pytest.mark.parametrize("constant", [True, False])
def test_batch_normalization(core, shape, constant):
    """With what is fused to it; channels far from 0, of small spread, keep their digits."""
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape) * 1e-2 + 1e2 * np.arange(shape[1]).reshape(-1, *(1,) * (len(shape) - 2))
    x, other = x.astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    mean = x.mean(axis=(0, *range(2, x.ndim)))
    scale, shift = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(2))
    values = [scale, shift, mean, np.full(shape[1], 1e-4, np.float32)]
    op, g = BatchNormalization(epsilon=1e-6), GraphBuilder()
    names = [g.constant(v) if constant else g.input(f"p{i}", "float32", v.shape) for i, v in enumerate(values)]
    y = g.node(op, g.input("x", "float32", shape), *names)
    outputs = [y, g.node(Relu(), g.node(Add(), g.node(op, "x", *names), g.input("other", "float32", shape)))]
    compiled = core.compile_model(g.model(outputs), "ONEDNN")
    feeds = {"x": awkward(x), "other": awkward(other)} | ({} if constant else {f"p{i}": v for i, v in enumerate(values)})
    want = op.reference(*(wide(a) for a in (x, *values)))
    found = [*compiled(feeds).values()]
    np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], np.maximum(want + other, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (4000,)])
def test_erf(core, shape):
    """To float32's precision, near 0 and where it is 1, too."""
    rng = np.random.default_rng(len(shape))
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 3, shape)).astype(np.float32)
    x.reshape(-1)[-5:] = [np.nan, np.inf, -np.inf, -0.0, 3e38][-x.size :]
    g = GraphBuilder()
    g.node(Relu(), g.node(Erf(), g.input("x", "float32", shape), outputs=["y"]), outputs=["z"])
    compiled = core.compile_model(g.model(["y", "z"]), "ONEDNN")
    for _ in range(2):
        y, z = compiled([awkward(x)]).values()
        want = np.vectorize(math.erf)(wide(x))
        np.testing.assert_allclose(y, want, rtol=5e-7, atol=0)
        np.testing.assert_array_equal(np.signbit(y), np.signbit(want))
        np.testing.assert_array_equal(z, np.maximum(y, 0))
    assert compiled.report().nodes[0].kernel != "ref"


@pytest.mark.parametrize("seed", range(24))
def test_broadcasts(core, seed):
    """Operands that lack some of the axes, at random, of an operator and of what is fused to it; [2, 3, 4, 16] among them."""
    rng = np.random.default_rng(seed)
    shape = (*rng.integers(1, 6, rng.integers(3, 7)).tolist(), 16)

    def some():
        cut = tuple(n if rng.random() < 0.5 else 1 for n in shape)
        return rng.standard_normal(cut[rng.integers(0, len(cut) + 1) * (rng.random() < 0.3) :]).astype(np.float32)

    x, others, fixed = rng.standard_normal(shape).astype(np.float32), [some(), some()], some()
    g = GraphBuilder()
    names = [g.input(f"x{i}", "float32", a.shape) for i, a in enumerate((x, *others))]
    value = g.node(Add(), g.node(Mul(), *names[:2]), names[2])
    g.node(Sub(), g.constant(fixed), value, outputs=["y"])
    found = core.compile_model(g.model(["y"]), "ONEDNN")([x, *map(awkward, others)])["y"]
    np.testing.assert_allclose(found, wide(fixed) - (wide(x) * others[0] + others[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 0, 2, 1), (1, 0, 2, 3), (0, 1, 3, 2)])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_transpose_of_bytes(core, dtype, perm):
    x = np.random.default_rng(2).integers(0, 256, (2, 3, 37, 50)).astype(np.uint8).view(dtype)
    g = GraphBuilder()
    g.node(Transpose(perm=perm), g.input("x", dtype, x.shape), outputs=["y"])
    np.testing.assert_array_equal(core.compile_model(g.model(["y"]), "ONEDNN")([awkward(x)])["y"], x.transpose(perm))


@pytest.mark.parametrize("shape", [(), (7,), (2, 19, 5, 3)])
def test_cubes(core, shape):
    """By two products, alone and with other steps behind; NaN and infinities too."""
    x, other = (np.random.default_rng(3).standard_normal(shape).astype(np.float32) for _ in range(2))
    x.reshape(-1)[-3:] = [np.nan, -np.inf, -0.0][-x.size :]
    g = GraphBuilder()
    names = [g.input("x", "float32", shape), g.input("other", "float32", shape)]
    cube = g.node(Pow(), names[0], g.constant(np.float32(3)))
    g.node(Mul(), g.node(Pow(), names[0], g.constant(np.float32(3))), names[1], outputs=["y"])
    compiled = core.compile_model(g.model([cube, "y"]), "ONEDNN")
    found = [*compiled([x, other]).values()]
    np.testing.assert_allclose(found[0], x.astype(np.float64) ** 3, rtol=3e-7)
    np.testing.assert_allclose(found[1], x.astype(np.float64) ** 3 * other, rtol=5e-7)


@pytest.mark.parametrize("shape", [(2, 3, 8, 1), (2, 1, 8, 16), (2, 3, 1, 16), (1, 3, 8, 1)])
def test_no_reference_broadcasts(core, shape):
    """Where oneDNN is slow for an operand of the rank of the result, but not once axes are merged."""
    g = GraphBuilder()
    x, other = (np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in ((2, 3, 8, 16), shape))
    g.node(Mul(), g.input("x", "float32", x.shape), g.input("other", "float32", shape), outputs=["y"])
    compiled = core.compile_model(g.model(["y"]), "ONEDNN")
    np.testing.assert_array_equal(compiled([x, other])["y"], x * other)
    assert "ref" not in compiled.report().nodes[0].kernel


@pytest.mark.parametrize("name", ["max_pool_1d", "max_pool_of_few_channels", "conv_1d_depthwise", "conv_1d_depthwise_same"])
def test_no_slow_implementation_is_taken(core, bench, name):
    """oneDNN's pooling of such plain data, and its depthwise convolution over one axis, take 10 to 30 times as long as others."""
    op, shape, parameters = PRIMITIVES[name]
    arrays = arrays_of(name, shape, parameters)
    compiled = core.compile_model(_model(bench.single(op, arrays, constants=range(1, len(arrays)))[0]), "ONEDNN")
    compiled({"x0": arrays[0]})
    assert not [n for n in compiled.report().nodes if n.kernel.startswith(("simple_nchw", "x64:gemm", "ref"))]


@pytest.mark.parametrize("name", [name for name in PRIMITIVES if name not in FIXED_BATCH])
def test_batch_0(core, name):
    op, shape, parameters = PRIMITIVES[name]
    arrays = arrays_of(name, (0, *shape[1:]), parameters)
    g = GraphBuilder()
    rest = ["" if a is None else g.constant(a) for a in arrays[1:]]
    g.node(op, g.input("x", "float32", arrays[0].shape), *rest, outputs=["y"])
    got = core.compile_model(g.model(["y"]), "ONEDNN")({"x": arrays[0]})["y"]
    assert got.shape[0] == 0
    assert got.size == 0


@pytest.mark.parametrize("channels", [16, 33])
def test_layouts_go_through(core, channels):
    """Normalisation, slopes and resampling take the layout of the convolutions around them."""
    rng = np.random.default_rng(channels)

    def some(*shape):
        return (rng.standard_normal(shape) / 6).astype(np.float32)

    w, slope = [some(channels, c, 3, 3) for c in (16, channels)], some(channels, 1, 1)
    steps = [LRN(size=5, alpha=0.5), PRelu(), Resize(mode="linear"), MaxPool(kernel_shape=(2, 2))]
    g = GraphBuilder()
    value = g.node(Conv(), g.input("x", "float32", (2, 16, 9, 8)), g.constant(w[0]))
    value = g.node(steps[0], value)
    value = g.node(steps[1], value, g.constant(slope))
    value = g.node(steps[2], value, "", g.constant(scales(1, 1, 2, 2)))
    value = g.node(Conv(), g.node(steps[3], value), g.constant(w[1]), outputs=["y"])
    x = some(2, 16, 9, 8) * 6
    compiled = core.compile_model(g.model(["y"]), "ONEDNN", {"FUSION": False})
    want = steps[0].reference(Conv().reference(wide(x), wide(w[0])))
    want = steps[2].reference(steps[1].reference(want, wide(slope)), None, scales(1, 1, 2, 2))
    want = Conv().reference(steps[3].reference(want)[0], wide(w[1]))
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
    nodes = [n for n in compiled.report().nodes if not n.op.endswith("Reorder")]
    # Without AVX-512 (oneDNN's number 0x27) oneDNN has no primitive for LRN of a block that is filled in part.
    refused = {"LRN"} if channels % 8 and not library()._has_isa(0x27) else set()
    assert {n.op for n in nodes if n.kernel == "ref"} == refused
    assert refused or compiled.report().reorders <= 2, "one for the input, one for the output"


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("size", [3, 7, 15])
def test_resampling_takes_the_coordinates_that_are_those_of_onednn(mode, size):
    """For all rules and sizes: those for which the reference takes the same elements, with a scale in float32 or float64."""
    taken = set()
    for coordinate, nearest in product(set(COORDINATES) - {"tf_crop_and_resize"}, NEAREST):
        sampling = Sampling(mode, coordinate, nearest)
        for out, kind in product({1, 2, 5, 6, 16, 30, 64} - {size}, (float, np.float32)):
            axis = Axis(0, size, out, float(kind(out / size)))
            found = resample(np.arange(size, dtype=np.float64), [axis], sampling)
            assert _agree(axis, sampling) == np.allclose(found, _places_of_onednn(axis, mode), rtol=1e-6, atol=1e-6)
            taken.add(_agree(axis, sampling))
    assert taken == {False, True}


def test_constants_are_reordered_once(core, monkeypatch):
    """Weights go into the primitive's layout when the model is compiled: no request and no run moves them again."""
    moved = []
    monkeypatch.setattr(constants, "moved", lambda *args, done=constants.moved: moved.append(args[0].shape) or done(*args))
    rng = np.random.default_rng(4)
    w = [rng.standard_normal(s).astype(np.float32) for s in ((32, 16, 3, 3), (24, 32, 1, 1))]
    g = GraphBuilder()
    value = g.node(Conv(), g.input("x", "float32", (1, 16, 9, 9)), g.constant(w[0]))
    g.node(Conv(), value, g.constant(w[1]), outputs=["y"])
    compiled = core.compile_model(g.model(["y"]), "ONEDNN")
    assert sorted(moved) == sorted(a.shape for a in w)
    executed = []
    describe = type(library()).describe_reorder
    monkeypatch.setattr(type(library()), "describe_reorder", lambda *args: executed.append(1) or describe(*args))
    for _ in range(3):
        request = compiled.create_infer_request()
        for _ in range(2):
            request.infer({"x": rng.standard_normal((1, 16, 9, 9)).astype(np.float32)})
    assert len(moved) == 2
    assert not executed
    assert compiled.report().reorders == 2, "of the input and the output"
