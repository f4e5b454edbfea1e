"""Data that a primitive gets wrong, NaN and infinities: references run instead, in whatever layout and with post-ops."""

from math import erf

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import dovetail
from dovetail.device import DType, Node, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, Binary, Eltwise, HostConfig, HostKernel, Layout, Operator
from dovetail_cpu_onednn import binder
from dovetail_cpu_onednn.elementwise import ElementwiseKernel
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan import bounds, fused_steps, scan
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.clip import Clip_6
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.elu import Elu
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.hard_swish import HardSwish
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.p_relu import PRelu
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.round import Round
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose

BLOCKS = "nChw16c" if library()._has_isa(0x27) else "nChw8c"
"""The layout of this CPU's convolutions: a block has as many channels as a vector has floats. 0x27 is oneDNN's avx512_core."""

SPECIAL = (np.nan, -np.nan, -np.inf, np.inf)


def spoilt(rng, dims, value):
    """Random data with `value` in one place, and in the whole of another channel."""
    x = rng.standard_normal(dims).astype(np.float32)
    x[0, 1, 2, 3] = value
    x[-1, -1] = value
    return x


def maxima(x, kernel):
    return sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::kernel, ::kernel].max((-2, -1))


def device_run(outputs, g, x):
    # Without the pass, because tests have the same node with and without post-ops.
    options = {"FALLBACK": False, "PASSES": "-merge_equal_nodes"}
    with dovetail.Core().compile_model(g.model(outputs), "ONEDNN", options) as compiled:
        return list(compiled([x]).values()), compiled.report()


def test_references_are_made_when_data_needs_them(monkeypatch):
    """They read an operand that is large enough to be read where the caller has it, if only primitives read it."""
    made, make = [], binder.reference_call
    monkeypatch.setattr(binder, "reference_call", lambda node, array: made.append(node.name) or make(node, array))
    rng, dims = np.random.default_rng(0), (1, 4096, 1, 1)
    g = GraphBuilder()
    chain = [Binary("mul", g.input("factor", "float32", dims))]
    x = g.input("x", "float32", (1, 4096, 2, 2))
    pooled = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), x, post_ops=chain)
    with dovetail.Core().compile_model(g.model([pooled]), "ONEDNN", {"FALLBACK": False}) as compiled:
        counts = []
        for spoilt_at in ((), (3,), (5, 7), ()):
            data, factor = rng.standard_normal((1, 4096, 2, 2)).astype(np.float32), rng.standard_normal(dims).astype(np.float32)
            data[0, list(spoilt_at), 1, 0] = np.nan
            want = data.max((2, 3), keepdims=True) * factor
            np.testing.assert_array_equal(compiled({"x": data, "factor": factor})[0], want)
            counts.append(len(made))
    assert counts == [0, 1, 1, 1]


@pytest.mark.parametrize("value", [0.0, *SPECIAL])
def test_maxima(value):
    x = spoilt(np.random.default_rng(0), (2, 5, 8, 10), value)
    g = GraphBuilder()
    name = g.input("x", "float32", x.shape)
    chain = [Eltwise("relu"), Binary("mul", g.constant(np.float32(2).reshape(1)))]
    pooled = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), name)
    chained = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), name, post_ops=chain)
    (plain, after, whole), report = device_run([pooled, chained, g.node(GlobalMaxPool(), name)], g, x)
    assert all(node.provider.startswith("dovetail-cpu-onednn") and node.kernel != "ref" for node in report.nodes)
    assert {node.post_ops for node in report.nodes} == {(), ("relu", "mul")}
    want = maxima(x, 2)
    np.testing.assert_array_equal(plain, want)
    np.testing.assert_array_equal(after, np.where(want < 0, 0, want) * 2)
    np.testing.assert_array_equal(whole, x.max((2, 3), keepdims=True))


class InLayout(HostKernel):
    """A copy in one layout only."""

    def __init__(self, layout):
        self.layout = Layout.of(layout)

    def configurations(self, op, inputs, outputs):
        return [HostConfig.uniform(inputs, outputs, self.layout)]

    def execute(self, op, config, inputs, outputs):
        np.copyto(outputs[0], inputs[0])


class CopyOfBlocks(Operator):
    domain = "test.guards"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    kernels = (InLayout(BLOCKS),)

    def reference(self, X):
        return X.copy()


class CopyOfPixels(CopyOfBlocks):
    kernels = (InLayout("NHWC"),)


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize(("layout", "channels"), [("NHWC", 21), (BLOCKS, 16), (BLOCKS, 21)])
def test_in_the_layout_of_the_neighbours(value, layout, channels):
    """Pooling, and activations that are separate because two nodes read their input."""
    x = spoilt(np.random.default_rng(1), (1, channels, 12, 14), value)
    g = GraphBuilder()
    copy = CopyOfPixels if layout == "NHWC" else CopyOfBlocks
    first, last = g.node(copy(), g.input("x", "float32", x.shape)), (lambda name: g.node(copy(), name))
    pooled = last(g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), first))
    active = last(g.node(HardSwish(), first))
    (p, a), report = device_run([pooled, active], g, x)
    found = {node.op: {str(value.type.layout) for value in node.outputs} for node in report.nodes}
    assert found["MaxPool"] == found["HardSwish"] == {str(Layout.of(layout))}
    np.testing.assert_array_equal(p, maxima(x, 2))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(a, x * np.clip(x.astype(np.float64) / 6 + 0.5, 0, 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(3, 5), (1, 70_000), (4, 90, 50, 16), (1 << 14,)])
@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_what_is_tame(dtype, shape, bad):
    data = np.zeros(shape, dovetail.DType(dtype).numpy)
    holds_no_nan_or = scan.holds_no_nan_or(data, library().stream(), bad)
    assert holds_no_nan_or()
    for value, tame in ((np.nan, False), (-np.nan, False), (bad, False), (-bad, True), (-3.0, True), (1e30, True)):
        for place in (0, data.size // 2 + 1, data.size - 1):
            data.flat[place] = value
            assert holds_no_nan_or() is tame, (value, place)
            data.flat[place] = 0


def test_a_value_is_searched_for_nan_by_one_primitive(monkeypatch):
    """Another one is made for data that holds plus infinity."""
    made, means = [], scan._means
    monkeypatch.setattr(scan, "_means", lambda *given: made.append(given) or means(*given))
    data = np.zeros(1 << 15, np.float32)
    has_no_nan = fused_steps.has_no_nan(data, library().stream())
    assert has_no_nan()
    assert len(made) == 1
    data[7] = np.inf
    assert has_no_nan()
    data[9] = np.nan
    assert not has_no_nan()


def inverted_residual(rng):
    """Convolutions with ReLU6 and without, and a sum, as in MobileNetV2: a model, and what it computes in float64."""
    g = GraphBuilder()
    six = [Eltwise("clip", 0.0, 6.0)]
    weights = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in WEIGHTS.items()}

    def conv(name, value, post_ops=(), group=1):
        return g.node(Conv(group=group), value, g.constant(weights[name]), post_ops=post_ops, name=name)

    first = conv("first", g.input("x", "float32", (1, 3, 6, 7)), six)
    narrow = conv("narrow", conv("depthwise", first, six, group=8))
    wide = conv("wide", g.node(Add(), narrow, conv("again", conv("middle", narrow, six))), six)

    def expected(x):
        def plain(name, value, group=1):
            return Conv(group=group).reference(value.astype(np.float64), weights[name].astype(np.float64))

        def clipped(value):
            return np.minimum(np.maximum(value, 0), 6)

        with np.errstate(all="ignore"):
            narrow = plain("narrow", clipped(plain("depthwise", clipped(plain("first", x)), 8)))
            return clipped(plain("wide", narrow + plain("again", clipped(plain("middle", narrow)))))

    return g, wide, expected


WEIGHTS = {
    "first": (8, 3, 1, 1),
    "depthwise": (8, 1, 3, 3),
    "narrow": (4, 8, 1, 1),
    "middle": (8, 4, 1, 1),
    "again": (4, 8, 1, 1),
    "wide": (16, 4, 1, 1),
}


def test_clips_keep_nan():
    """In all of a chain, whose data is looked at in one place only; runs with and without NaN do not disturb each other."""
    rng = np.random.default_rng(2)
    g, y, expected = inverted_residual(rng)
    with dovetail.Core().compile_model(g.model([y]), "ONEDNN", {"FALLBACK": False}) as compiled:
        for value in (1.0, *SPECIAL, 3e38, 1.0):
            x = rng.standard_normal((1, 3, 6, 7)).astype(np.float32)
            x[0, 1, 2, 3] = value
            want = expected(x)
            assert np.isnan(want).any() == np.isnan(value)
            np.testing.assert_allclose(compiled([x])[y], want, rtol=1e-4, atol=1e-4)
        chains = [node.post_ops for node in compiled.report().nodes if node.op == "Conv"]
    assert chains.count(("clip",)) == 4


def test_which_data_clips_look_at(bench):
    g, y, _ = inverted_residual(np.random.default_rng(3))
    executable = bench.executable(g.graph([y]))
    clip_checks = {name: list(names) for name, names in executable.clip_checks.items()}
    (first,) = clip_checks.pop("first")
    assert executable.graph.types[first].dims == (1, 3, 6, 7)
    assert clip_checks == {"depthwise": [], "middle": [], "wide": []}


def test_rounded_quotients_keep_nan():
    """A division by a known number other than 0 bounds what a clip behind it receives, as does the rounding."""
    rng = np.random.default_rng(4)
    scale, weights = np.float32(0.013), rng.standard_normal((5, 7)).astype(np.float32)
    g = GraphBuilder()
    x = g.input("x", "float32", (3, 5))

    def rounded(value):
        whole = g.node(Round(), g.node(Div(), value, g.constant(scale)))
        return g.node(Mul(), g.node(Clip_6(min=-100.0, max=90.0), whole), g.constant(scale))

    y = rounded(g.node(Transpose(), rounded(g.node(MatMul(), x, g.constant(weights)))))
    with dovetail.Core().compile_model(g.model([y]), "ONEDNN", {"FALLBACK": False}) as compiled:
        for value in (1.0, *SPECIAL, 3e38, 1.0):
            data = rng.standard_normal((3, 5)).astype(np.float32)
            data[1, 2] = value
            with np.errstate(all="ignore"):
                want = (np.clip(np.rint(data @ weights / scale), -100, 90) * scale).T
            np.testing.assert_allclose(compiled([data])[y], want, rtol=1e-6, atol=1.01 * scale)
        chains = [node.post_ops for node in compiled.report().nodes if node.post_ops]
    assert chains == [("div", "round", "clip", "mul"), ("round", "clip", "mul")]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_usual(bench, dtype):
    data = np.zeros((3, 5), dovetail.DType(dtype).numpy)
    g = GraphBuilder()
    name = g.input("x", dtype, data.shape)
    graph = bench.typed(g.graph([g.node(Add(), name, name)]))
    look = bounds.are_moderate(TypedNode.of(graph.nodes[0], graph), None, lambda name: data)
    for value, usual in ((0.0, True), (-9e11, True), (9e11, True), (-2e12, False), (2e12, False), *((v, False) for v in SPECIAL)):
        data[1, 2] = value
        assert look() is usual, value


def active(g, name, channels, *chain):
    """A depthwise convolution by ones, with a chain."""
    return g.node(Conv(group=channels), name, g.constant(np.ones((channels, 1, 1, 1), np.float32)), post_ops=chain)


@pytest.mark.parametrize("last", ["softmax", "max_pool"])
def test_a_guard_finds_what_a_fused_step_made(bench, last):
    """The guard of the node that reads an activation looks for NaN already: no result is checked once more."""
    rng, g = np.random.default_rng(6), GraphBuilder()
    x = rng.standard_normal((1, 16, 4, 6)).astype(np.float32)
    value = active(g, g.input("x", "float32", x.shape), 16, Eltwise("relu"))
    value = g.node(Softmax() if last == "softmax" else MaxPool(kernel_shape=(2, 2), strides=(2, 2)), value)
    executable = bench.executable(g.graph([value]))
    assert not executable.nan_checks.before
    assert not executable.nan_checks.final
    assert len(executable.nan_checks.refused) == 1
    request = executable.create_request()

    def expected(v):
        with np.errstate(invalid="ignore"):
            v = np.maximum(v.astype(np.float64), 0)
            e = np.exp(v - v.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True) if last == "softmax" else maxima(v, 2)

    for infinity, is_repeated in ((0.0, False), (np.inf, False), (-np.inf, True), (np.nan, True), (1.0, True)):
        x[0, 1, 2, 3] = infinity
        np.testing.assert_allclose(request.run([x])[0], expected(x), rtol=1e-6, atol=1e-7)
        assert (request._strict is not None) is is_repeated


@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("algorithm", ["relu", "gelu_erf"])
def test_infinities_in_activations(bench, algorithm, channels):
    """oneDNN makes NaN of them. It is found in the results, and where a comparison would lose it."""
    rng, g = np.random.default_rng(4), GraphBuilder()
    x = rng.standard_normal((1, channels, 6, 7)).astype(np.float32)
    name = g.input("x", "float32", x.shape)
    once = active(g, name, channels, Eltwise(algorithm))
    pooled = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), active(g, once, channels))
    large = g.node(Greater(), active(g, name, channels, Eltwise(algorithm)), g.constant(np.float32(-9)))
    added = active(g, active(g, name, channels), channels, Binary("add", active(g, name, channels)), Eltwise(algorithm))
    executable = bench.executable(g.graph([pooled, large, added]))
    assert len(executable.nan_checks.before) == 1
    assert executable.nan_checks.final == executable.graph.outputs[2:]
    assert executable.nan_checks.refused == {"max_pool"}
    request, infinity = executable.create_request(), -np.inf if algorithm == "relu" else np.inf
    request.run([x])
    assert request._strict is None

    def expected(v):
        return np.maximum(v, 0) if algorithm == "relu" else v * (0.5 + 0.5 * np.vectorize(erf)(v / np.sqrt(2)))

    for value in (0.0, infinity, 0.0):
        x[0, 1, 2, 3] = value
        wide = x.astype(np.float64)
        found = [np.array(y) for y in request.run([x])]
        for got, want in zip(found, (maxima(expected(wide), 2), expected(wide) > -9, expected(2 * wide)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_nan_that_is_a_result(bench):
    g = GraphBuilder()
    y = active(g, g.input("x", "float32", (1, 4, 2, 3)), 4, Eltwise("relu"))
    x = np.full((1, 4, 2, 3), -1, np.float32)
    x[0, 1, 1, 1] = np.nan
    (got,) = bench.run_twice(bench.executable(g.graph([y])), [x])
    np.testing.assert_array_equal(got, np.maximum(x, 0))


def normalised(g, name, parameters, *chain):
    return g.node(BatchNormalization(epsilon=0.25), name, *(g.constant(p) for p in parameters), post_ops=chain)


@pytest.mark.parametrize("value", [0.0, *SPECIAL])
@pytest.mark.parametrize(
    ("dims", "blocked"), [((2, 5, 4, 6), False), ((2, 16, 4, 6), True), ((2, 21, 4, 6), True), ((3, 16), False)]
)
def test_relu_of_batch_normalization(dims, blocked, value):
    """oneDNN's own relu there gives 0 for NaN in one implementation, and NaN for minus infinity in another."""
    rng, g = np.random.default_rng(5), GraphBuilder()
    channels = dims[1]
    x = rng.standard_normal(dims).astype(np.float32)
    x[0, 1], x[-1, -1] = value, value
    parameters = [rng.standard_normal(channels).astype(np.float32) for _ in range(3)]
    parameters.append(rng.uniform(0.5, 2, channels).astype(np.float32))
    name = g.input("x", "float32", dims)
    lay = (lambda v: g.node(CopyOfBlocks(), v)) if blocked else (lambda v: v)
    (got,), report = device_run([lay(normalised(g, lay(name), parameters, Eltwise("relu")))], g, x)
    assert ("relu",) in {node.post_ops for node in report.nodes}
    scale, bias, mean, variance = (p.astype(np.float64).reshape(-1, *(1 for _ in dims[2:])) for p in parameters)
    with np.errstate(invalid="ignore"):
        want = np.maximum((x.astype(np.float64) - mean) / np.sqrt(variance + 0.25) * scale + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("value", [0.0, *SPECIAL])
def test_relu_of_batch_normalization_by_special_parameters(index, value):
    """Against the formula: an infinite mean of finite data gives an infinity, a factor of 0 times infinity NaN."""
    rng, g = np.random.default_rng(6), GraphBuilder()
    x = rng.standard_normal((2, 16)).astype(np.float32)
    x[0, 3] = np.inf
    parameters = [rng.uniform(0.5, 2, 16).astype(np.float32) for _ in range(4)]
    parameters[index][3] = value
    (got,), _ = device_run([normalised(g, g.input("x", "float32", x.shape), parameters, Eltwise("relu"))], g, x)
    scale, bias, mean, variance = (p.astype(np.float64) for p in parameters)
    with np.errstate(invalid="ignore"):
        want = np.maximum((x.astype(np.float64) - mean) / np.sqrt(variance + 0.25) * scale + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("slope", [*SPECIAL, 0.25])
@pytest.mark.parametrize("is_constant", [True, False])
def test_slopes_of_prelu_that_are_not_finite(slope, is_constant):
    """A positive element keeps its value, whatever its slope."""
    x = spoilt(np.random.default_rng(6), (2, 5, 7, 9), np.inf)
    slopes = np.full((5, 1, 1), 0.5, np.float32)
    slopes[2] = slope
    g = GraphBuilder()
    name = g.input("x", "float32", x.shape)
    given = g.constant(slopes) if is_constant else g.input("slopes", "float32", slopes.shape)
    with dovetail.Core().compile_model(g.model([g.node(PRelu(), name, given)]), "ONEDNN", {"FALLBACK": False}) as compiled:
        (got,) = compiled([x] if is_constant else [x, slopes]).values()
        (node,) = compiled.report().nodes
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.where(x >= 0, x, slopes * x))
    assert (node.kernel == "ref") is (is_constant and not np.isfinite(slope))


@pytest.mark.parametrize("first", ["relu", "elu", "exp", "hard_sigmoid", "sigmoid", "tanh", "leaky_relu", "neg", "abs"])
@pytest.mark.parametrize("then", ["relu", "sigmoid", "gated"])
def test_activations_one_after_another(first, then):
    """They are one primitive, and NaN, infinities and the largest numbers give what they give one by one."""
    op = {type(o).stem: o for o in (Relu(), Elu(), Exp(), HardSigmoid(), Sigmoid(), Tanh(), LeakyRelu(alpha=0.25), Neg(), Abs())}
    x = np.random.default_rng(1).standard_normal((3, 5, 7)).astype(np.float32)
    special = np.array([*SPECIAL, 0.0, -0.0, 3e38, -3e38, 1e-40, -100, 100, 88.8], np.float32)
    x.reshape(-1)[: 2 * len(special)] = np.repeat(special, 2)
    g = GraphBuilder()
    y = g.node(op[first], g.input("x", "float32", x.shape))
    y = g.node(Mul(), y, g.constant(np.full((3, 5, 7), -0.5, np.float32))) if then == "gated" else g.node(op[then], y)
    for data in (x, np.random.default_rng(2).standard_normal(x.shape).astype(np.float32)):
        (want,) = dovetail.Core().compile_model(g.model([y]), "NUMPY")([data]).values()
        (got,), report = device_run([y], g, data)
        (node,) = report.nodes
        assert node.kernel == "jit:uni"
        assert len(node.post_ops) == 1
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def leaky(x, slope):
    with np.errstate(all="ignore"):
        return np.where(x > 0, x, np.float32(slope) * x)


@pytest.mark.parametrize("slope", [0.01, 0.25, 1.0, 1.5, 1e30, 1e-30, -0.5, -3.0])
@pytest.mark.parametrize("dims", [(), (7,), (3, 5), (2, 3, 40), (2, 20, 4, 3), (2, 3, 1, 1), (2, 3, 2, 2, 3), (2, 2, 2, 2, 2, 2)])
def test_slopes_of_one_primitive(slope, dims):
    """Of any sign, and with a step behind it."""
    x = np.asarray(np.random.default_rng(3).standard_normal(dims), np.float32)
    special = [*SPECIAL, 0.0, -0.0, 3e38, -3e38, 1e-40, -1e-40]
    for first in range(0, len(special), max(1, x.size)):
        data = x.copy()
        data.reshape(-1)[: len(special) - first] = special[first:][: x.size]
        g = GraphBuilder()
        y = g.node(LeakyRelu(alpha=slope), g.input("x", "float32", dims))
        got = device_run([y, g.node(Abs(), g.node(LeakyRelu(alpha=slope), "x"))], g, data)[0]
        np.testing.assert_array_equal(got[0], leaky(data, slope))
        np.testing.assert_array_equal(got[1], np.abs(leaky(data, slope)))


@pytest.mark.parametrize("slope", [0.25, -2.0, 4.0])
def test_slopes_behind_a_convolution_with_other_readers(slope):
    """In blocks of channels, the last one not whole."""
    rng = np.random.default_rng(4)
    x, w = spoilt(rng, (2, 3, 6, 6), np.nan), rng.standard_normal((20, 3, 3, 3)).astype(np.float32)
    g = GraphBuilder()
    y = g.node(Conv(), g.input("x", "float32", x.shape), g.constant(w))
    (plain, got), report = device_run([y, g.node(LeakyRelu(alpha=slope), y)], g, x)
    assert not report.nodes[0].post_ops
    np.testing.assert_array_equal(got, leaky(plain, slope))


def test_slopes_share_a_primitive():
    kernel, x = ElementwiseKernel(), TensorType(DType.FLOAT32, (2, 3, 5))
    nodes = [TypedNode(Node("n", LeakyRelu(alpha=a), ("x",), ("y",)), (x,), (x,)) for a in (0.1, 0.2, -0.3, 1.5)]
    first, second, third, over_1 = [kernel.plan(node, False, False).stages[0].desc for node in nodes]
    assert first is second is third is not over_1
    assert not any(kernel.is_guarded(node) for node in nodes)
    blocks = TensorType(DType.FLOAT32, (2, 20, 3, 5)).with_layout(Layout(BLOCKS))
    in_blocks = TypedNode(nodes[0].node, (blocks,), (blocks,))
    assert kernel.is_guarded(in_blocks)
    assert not kernel.final(in_blocks, False).is_reference


class DoubledLeaky(Operator):
    domain = "com.test"
    inputs, outputs, types = ("X: T",), ("Y: T",), {"T": FLOATS}

    def post_ops(self, types, names, chained):
        return (Eltwise("relu", 0.5, scale=2.0),)

    def reference(self, X):
        return 2 * leaky(X, 0.5)


def test_a_slope_with_a_factor():
    x = np.array([*SPECIAL, 3, -5], np.float32)
    g = GraphBuilder()
    (got,), _ = device_run([g.node(DoubledLeaky(), g.input("x", "float32", x.shape))], g, x)
    np.testing.assert_array_equal(got, 2 * leaky(x, 0.5))
