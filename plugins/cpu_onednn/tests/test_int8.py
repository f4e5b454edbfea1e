"""int8 primitives against ONNX's formulas in integers and float64, quantization by quantization."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DType, KernelTable, Node, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels._quantized import QuantizedKernel
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find

OPSET = 17
IN_FLOAT32 = not library().has_int8
"""This CPU has no instructions for 8-bit products: the same numbers come out, but by float32 between (de)quantizations."""

FAST = ("vnni", "int8")
"""Parts of the names of int8 implementations."""


def op(name, **attributes):
    return find(name, OPSET)(**attributes)


@dataclass(frozen=True)
class Numbers:
    """A quantized tensor: its stored numbers, scale and zero point."""

    stored: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int = 1

    @property
    def real(self):
        """In float64."""
        scale, zero = self.scale.astype(np.float64), self.zero.astype(np.float64)
        if scale.ndim:
            shape = [-1 if axis == self.axis else 1 for axis in range(self.stored.ndim)]
            scale, zero = scale.reshape(shape), np.broadcast_to(zero, scale.shape).reshape(shape)
        return (self.stored.astype(np.float64) - zero) * scale


def stored(real, scale, zero):
    """The formula of QuantizeLinear in float64."""
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(real / np.float64(scale)) + np.float64(zero), limits.min, limits.max).astype(zero.dtype)


class Net:
    """A graph with quantized inputs, and the data for them."""

    def __init__(self, seed):
        self.g, self.rng, self.feeds, self.parameters = GraphBuilder(), np.random.default_rng(seed), {}, {}

    def source(self, shape, dtype=np.uint8, zero=117, scale=0.03):
        """An input over the whole range of its type, and its name."""
        limits = np.iinfo(dtype)
        data = self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        numbers = Numbers(data, np.float32(scale), np.array(zero, dtype))
        name = self.g.input(f"x{len(self.feeds)}", np.dtype(dtype).name, shape)
        self.feeds[name] = data
        return numbers, self.dequantized(name, numbers)

    def weights(self, shape, dtype=np.int8, axis=0, zero=0, single=False):
        """Constant weights with a scale for each place along an axis."""
        limits = np.iinfo(dtype)
        data = self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        count = () if single else (shape[axis],)
        numbers = Numbers(data, self.rng.uniform(0.002, 0.01, count).astype(np.float32), np.full(count, zero, dtype), axis)
        return numbers, self.dequantized(self.g.constant(data), numbers)

    def bias(self, size):
        """A constant bias of int32."""
        numbers = Numbers(self.rng.integers(-9000, 9000, size, np.int32), np.full(size, 2e-4, np.float32), np.int32(0), 0)
        zero = np.zeros(size, np.int32)
        node = op("DequantizeLinear", axis=0)
        return numbers, self.g.node(node, *map(self.g.constant, (numbers.stored, numbers.scale, zero)))

    def dequantized(self, name, numbers):
        node = op("DequantizeLinear", axis=numbers.axis)
        return self.g.node(node, name, self.g.constant(numbers.scale), self.g.constant(numbers.zero))

    def quantized(self, name, scale, zero):
        return self.g.node(op("QuantizeLinear"), name, self.g.constant(np.float32(scale)), self.g.constant(zero))

    def run(self, *outputs):
        """The outputs on ONEDNN, and operator -> kernel of the plan."""
        compiled = Core().compile_model(self.g.model(outputs), "ONEDNN")
        found = compiled(self.feeds)
        return list(found.values()), [(n.op, n.kernel) for n in compiled.report().nodes if n.op != "dovetail::Reorder"]


def agrees(got, want, exact=0.99):
    """Within one quantum everywhere, and equal but for rounding at the border between two."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    distance = np.abs(got.astype(np.int64) - want.astype(np.int64))
    assert distance.max(initial=0) <= 1
    assert (distance == 0).mean() >= exact if distance.size else True


def convolved(x, w, strides=(1, 1), pads=(0, 0, 0, 0), group=1, dilation=1):
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    extent = [(k - 1) * dilation + 1 for k in w.shape[2:]]
    view = np.lib.stride_tricks.sliding_window_view(padded, extent, axis=(2, 3))
    view = view[:, :, :: strides[0], :: strides[1], ::dilation, ::dilation]
    parts = np.split(view, group, axis=1)
    return np.concatenate([np.einsum("nchwij,mcij->nmhw", p, k) for p, k in zip(parts, np.split(w, group), strict=True)], axis=1)


CONVOLUTIONS = {
    "pointwise": ((2, 17, 7, 5), (19, 17, 1, 1), {}),
    "odd_channels_padded": ((1, 5, 9, 7), (7, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    "asymmetric_strides": ((2, 16, 11, 8), (32, 16, 3, 2), {"pads": (0, 1, 2, 0), "strides": (2, 3)}),
    "groups": ((1, 32, 6, 6), (32, 16, 3, 3), {"pads": (1, 1, 1, 1), "group": 2}),
    "depthwise": ((1, 32, 9, 9), (32, 1, 3, 3), {"pads": (1, 1, 1, 1), "group": 32}),
    "first_layer": ((1, 3, 16, 16), (16, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    "one_scale": ((1, 16, 5, 5), (16, 16, 3, 3), {"single": True}),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype):
    shape, kernel, options = CONVOLUTIONS[name]
    options = dict(options)
    single = options.pop("single", False)
    for index, zero in enumerate((np.iinfo(dtype).min, np.iinfo(dtype).max, 5)):
        net = Net(index)
        x, x_name = net.source(shape, dtype, zero)
        w, w_name = net.weights(kernel, single=single)
        b, b_name = net.bias(kernel[0])
        attributes = {k: v for k, v in options.items() if k != "dilation"}
        y = net.g.node(op("Conv", **attributes), x_name, w_name, b_name)
        real = convolved(x.real, w.real, **options) + b.real.reshape(-1, 1, 1)
        scale, target = np.float32(np.abs(real).max() / 100), np.array(zero, dtype)
        (got,), kernels = net.run(net.quantized(y, scale, target))
        agrees(got, stored(real, scale, target))
        assert IN_FLOAT32 or [one for one, _ in kernels] == ["dovetail::QuantizedConv"], kernels
        assert IN_FLOAT32 or any(part in kernels[0][1] for part in FAST)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("zero", [0, 7, 8, 255])
def test_halves_go_to_even_before_the_zero_point(zero, relu):
    net = Net(21)
    x, x_name = net.source((1, 16, 5, 5), scale=0.5)
    stored_weights = np.eye(16, dtype=np.int8).reshape(16, 16, 1, 1)
    w = Numbers(stored_weights, np.float32(1), np.int8(0), 0)
    y = net.g.node(op("Conv"), x_name, net.dequantized(net.g.constant(stored_weights), w))
    real = np.maximum(x.real, 0) if relu else x.real
    (got,), kernels = net.run(net.quantized(net.g.node(op("Relu"), y) if relu else y, 1, np.uint8(zero)))
    np.testing.assert_array_equal(got, stored(real, 1, np.uint8(zero)))
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedConv"


def test_uint8_weights_are_shifted():
    net = Net(3)
    x, x_name = net.source((1, 16, 5, 5))
    w, w_name = net.weights((8, 16, 3, 3), np.uint8, zero=128)
    real = convolved(x.real, w.real)
    (got,), kernels = net.run(net.quantized(net.g.node(op("Conv"), x_name, w_name), 0.5, np.uint8(128)))
    agrees(got, stored(real, 0.5, np.uint8(128)))
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedConv"


@pytest.mark.parametrize(("zero", "splits"), [(100, True), (0, False)])
def test_weights_with_a_zero_point_are_split_or_left_to_float32(zero, splits):
    """Two int8 numbers do not add up to 255."""
    net = Net(3)
    x, x_name = net.source((1, 16, 5, 5))
    w, w_name = net.weights((8, 16, 3, 3), np.uint8, zero=zero)
    real = convolved(x.real, w.real)
    (got,), kernels = net.run(net.quantized(net.g.node(op("Conv"), x_name, w_name), 0.5, np.uint8(128)))
    agrees(got, stored(real, 0.5, np.uint8(128)))
    whole = ["DequantizeLinear", "Conv", "QuantizeLinear"]
    assert [one for one, _ in kernels] == (["dovetail::QuantizedConv"] * 2 if splits and not IN_FLOAT32 else whole)


@pytest.mark.parametrize("kernel", [(16, 16, 1, 1), (17, 16, 3, 3), (16, 1, 3, 3)])
@pytest.mark.parametrize("follower", ["Clip", "Relu", "Tanh", "Mul", "Sub"])
def test_what_follows_a_convolution(follower, kernel):
    """conv -> Q -> DQ -> an elementwise operator -> Q."""
    net = Net(5)
    x, x_name = net.source((1, 16, 7, 5))
    w, w_name = net.weights(kernel)
    group = 16 // kernel[1]
    real = convolved(x.real, w.real, group=group)
    inner = Numbers(stored(real, 0.08, np.uint8(115)), np.float32(0.08), np.uint8(115))
    y = net.quantized(net.g.node(op("Conv", group=group), x_name, w_name), 0.08, np.uint8(115))
    value, row = net.dequantized(y, inner), net.rng.uniform(0.5, 2, (kernel[0], 1, 1)).astype(np.float32)
    others, want = {
        "Clip": ((np.float32(0), np.float32(6)), np.clip(inner.real, 0, 6)),
        "Relu": ((), np.maximum(inner.real, 0)),
        "Tanh": ((), np.tanh(inner.real)),
        "Mul": ((row,), inner.real * row),
        "Sub": ((row,), inner.real - row),
    }[follower]
    total = net.g.node(op(follower), value, *map(net.g.constant, others))
    (got,), kernels = net.run(net.quantized(total, 0.02, np.uint8(3)))
    agrees(got, stored(want, 0.02, np.uint8(3)))
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedConv"


@pytest.mark.parametrize("relu", [True, False])
def test_residual_sum(relu):
    """conv -> Q -> DQ -> Add(DQ) [-> Relu] -> Q, each rounding in its place."""
    net = Net(7)
    x, x_name = net.source((2, 17, 6, 5))
    r, r_name = net.source((2, 19, 6, 5), zero=31, scale=0.04)
    w, w_name = net.weights((19, 17, 3, 3))
    inner = Numbers(stored(convolved(x.real, w.real, pads=(1, 1, 1, 1)), 0.06, np.uint8(120)), np.float32(0.06), np.uint8(120))
    y = net.quantized(net.g.node(op("Conv", pads=(1, 1, 1, 1)), x_name, w_name), 0.06, np.uint8(120))
    total = net.g.node(op("Add"), net.dequantized(y, inner), r_name)
    real = inner.real + r.real
    if relu:
        total, real = net.g.node(op("Relu"), total), np.maximum(real, 0)
    compiled = Core().compile_model(net.g.model([net.quantized(total, 0.05, np.uint8(90))]), "ONEDNN")
    (got,) = compiled(net.feeds).values()
    agrees(got, stored(real, 0.05, np.uint8(90)))
    nodes = [node for node in compiled.report().nodes if node.op != "dovetail::Reorder"]
    assert IN_FLOAT32 or [node.op for node in nodes] == ["dovetail::QuantizedConv"]
    assert IN_FLOAT32 or nodes[0].post_ops == ("requantize", "add", *(["relu"] if relu else []), "quantize")
    assert IN_FLOAT32 or len(nodes[0].origins) == 5 + relu


@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ((1, 1, 28, 25), (8, 1, 3, 3), {}),
        ((2, 1, 49, 10), (64, 1, 10, 4), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
        ((3, 24, 1, 1), (16, 24, 1, 1), {}),
        ((1, 16, 9, 9), (1, 16, 3, 3), {"pads": (1, 1, 1, 1)}),
    ],
    ids=["image", "spectrum", "squeezed", "mask"],
)
def test_one_channel_or_element_in_plain_data(monkeypatch, shape, weights, attributes):
    """Plain data that are channels-last data too need not oneDNN's reference, which takes 50 to 200 times as long."""
    plans = []
    final = QuantizedKernel.final
    monkeypatch.setattr(QuantizedKernel, "final", lambda *given: plans.append(final(*given)) or plans[-1])
    net = Net(31)
    (x, x_name), (w, w_name), (b, b_name) = net.source(shape), net.weights(weights), net.bias(weights[0])
    y = net.g.node(op("Conv", **attributes), x_name, w_name, b_name)
    (got,), _ = net.run(net.quantized(y, 0.5, np.uint8(128)))
    real = op("Conv", **attributes).reference(x.real, w.real, b.real)
    agrees(got, stored(real, 0.5, np.uint8(128)))
    assert IN_FLOAT32 or (plans and not any(plan.is_slow for plan in plans))


def test_float32_result():
    net = Net(8)
    x, x_name = net.source((1, 16, 6, 5))
    w, w_name = net.weights((24, 16, 3, 3))
    y = net.g.node(op("Relu"), net.g.node(op("Conv"), x_name, w_name))
    (got,), kernels = net.run(y)
    np.testing.assert_allclose(got, np.maximum(convolved(x.real, w.real), 0), rtol=1e-5, atol=1e-4)
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedConv"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 33)])
def test_matrix_product(shape, dtype):
    net = Net(9)
    x, x_name = net.source(shape, dtype, np.iinfo(dtype).max)
    w, w_name = net.weights((33, 21), axis=1)
    real = x.real @ w.real
    (got,), kernels = net.run(net.quantized(net.g.node(op("MatMul"), x_name, w_name), 1.5, dtype(3)))
    agrees(got, stored(real, 1.5, dtype(3)))
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedMatMul"


@pytest.mark.parametrize(("dims", "count"), [((21,), 1), ((3, 21), 2)])
def test_a_real_bias_behind_a_product_that_is_not_quantized_again(dims, count):
    """A row is an argument of the primitive; a matrix stays a node of its own."""
    net = Net(16)
    x, x_name = net.source((2, 3, 33))
    w, w_name = net.weights((33, 21), axis=1)
    bias = net.rng.standard_normal(dims).astype(np.float32)
    (got,), nodes = net.run(net.g.node(op("Add"), net.g.node(op("MatMul"), x_name, w_name), net.g.constant(bias)))
    np.testing.assert_allclose(got, x.real @ w.real + bias, rtol=1e-5, atol=1e-4)
    assert IN_FLOAT32 or [name for name, _ in nodes] == ["dovetail::QuantizedMatMul", "Add"][:count]


def test_gemm():
    net = Net(10)
    x, x_name = net.source((5, 33))
    w, w_name = net.weights((21, 33))
    b, b_name = net.bias(21)
    y = net.g.node(op("Gemm", transB=1, alpha=0.5, beta=2.0), x_name, w_name, b_name)
    real = 0.5 * x.real @ w.real.T + 2 * b.real
    (got,), kernels = net.run(net.quantized(y, 0.4, np.uint8(130)))
    agrees(got, stored(real, 0.4, np.uint8(130)))
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedGemm"


def test_gemm_of_one_column_with_a_number_as_bias():
    """A scalar, and a vector of one element."""
    for bias in (np.float32(3), np.array([3], np.float32)):
        net = Net(10)
        x, x_name = net.source((5, 33))
        w, w_name = net.weights((1, 33))
        y = net.g.node(op("Gemm", transB=1), x_name, w_name, net.g.constant(np.asarray(bias)))
        (got,), _ = net.run(net.quantized(y, 0.4, np.uint8(130)))
        agrees(got, stored(x.real @ w.real.T + bias, 0.4, np.uint8(130)))


def test_sum():
    net = Net(11)
    a, a_name = net.source((3, 5, 7), zero=255)
    b, b_name = net.source((3, 5, 7), zero=0, scale=0.011)
    (got,), kernels = net.run(net.quantized(net.g.node(op("Add"), a_name, b_name), 0.05, np.uint8(200)))
    agrees(got, stored(a.real + b.real, 0.05, np.uint8(200)))
    assert IN_FLOAT32 or kernels[0][0] == "dovetail::QuantizedAdd"


def test_maximum_and_mean():
    net = Net(12)
    x, x_name = net.source((2, 19, 9, 7))
    pool = net.g.node(op("MaxPool", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), x_name)
    maximum = net.quantized(pool, x.scale, x.zero)
    mean = net.quantized(net.g.node(op("GlobalAveragePool"), net.dequantized(maximum, x)), 0.01, np.uint8(128))
    found, kernels = net.run(maximum, mean)
    padded = np.pad(x.stored, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max((-1, -2))
    np.testing.assert_array_equal(found[0], want)
    real = Numbers(want, x.scale, x.zero).real.mean((2, 3), keepdims=True)
    agrees(found[1], stored(real, 0.01, np.uint8(128)))
    assert IN_FLOAT32 or [one for one, _ in kernels] == ["MaxPool", "dovetail::QuantizedGlobalAveragePool"]
    assert IN_FLOAT32 or all("int8" in kernel or "jit_int" in kernel for _, kernel in kernels)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_nearest_elements_of_bytes(dtype):
    net = Net(17)
    x, x_name = net.source((2, 5, 7, 6), dtype)
    scales = net.g.constant(np.float32([1, 1, 2, 3]))
    resized = net.g.node(op("Resize", coordinate_transformation_mode="asymmetric", nearest_mode="floor"), x_name, "", scales)
    (got,), kernels = net.run(net.quantized(resized, x.scale, x.zero))
    np.testing.assert_array_equal(got, x.stored.repeat(2, 2).repeat(3, 3))
    assert [one for one, _ in kernels] == ["Resize"]
    assert kernels[0][1] != "ref"


def test_numbers_between_bytes_are_cut_off():
    """oneDNN rounds them."""
    net = Net(18)
    x, _ = net.source((1, 3, 4, 5))
    scales = net.g.constant(np.float32([1, 1, 2, 2]))
    node = op("Resize", mode="linear")
    (got,), _ = net.run(net.g.node(node, "x0", "", scales))
    np.testing.assert_array_equal(got, node.reference(x.stored, None, np.float32([1, 1, 2, 2]), None))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_edges_of_the_quantized_part(dtype):
    """QuantizeLinear and DequantizeLinear alone: halves to even, saturation, infinities."""
    g = GraphBuilder()
    x = g.input("x", "float32", (3, 70))
    scale, zero = np.float32(0.25), dtype(7)
    y = g.node(op("QuantizeLinear"), x, g.constant(scale), g.constant(zero))
    z = g.node(op("DequantizeLinear"), y, g.constant(scale), g.constant(zero))
    data = np.random.default_rng(1).uniform(-40, 40, (3, 70)).astype(np.float32)
    data[0, :8] = np.array([0.125, 0.375, 0.625, -0.125, 1e9, -1e9, np.inf, -np.inf])
    compiled = Core().compile_model(g.model([y, z]), "ONEDNN")
    found = compiled({"x": data})
    want = stored(data.astype(np.float64), scale, zero)
    np.testing.assert_array_equal(found[y], want)
    np.testing.assert_array_equal(found[z], ((want.astype(np.float32) - zero) * scale).astype(np.float32))
    assert [n.kernel for n in compiled.report().nodes] == ["jit:uni int8"] * 2


_OLD_CPU = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_int8 import Net, agrees, convolved, op, stored
net = Net(3)
x, x_name = net.source((1, 16, 5, 5), zero=0)
w, w_name = net.weights((8, 16, 3, 3))
(got,), kernels = net.run(net.quantized(net.g.node(op("Conv"), x_name, w_name), 0.5, np.uint8(128)))
agrees(got, stored(convolved(x.real, w.real), 0.5, np.uint8(128)))
print([one for one, _ in kernels])
"""


def test_a_cpu_whose_sums_would_saturate_computes_in_float32():
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-c", _OLD_CPU, os.path.dirname(__file__)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "['DequantizeLinear', 'Conv', 'QuantizeLinear']", done.stderr


def test_batch_0():
    net = Net(13)
    _, x_name = net.source((0, 16, 5, 5))
    _, w_name = net.weights((8, 16, 3, 3))
    (got,), _ = net.run(net.quantized(net.g.node(op("Conv"), x_name, w_name), 0.5, np.uint8(128)))
    assert got.shape == (0, 8, 3, 3)
    assert got.dtype == np.uint8


def test_qlinear_conv():
    """The older format takes the same way, residual behind it included."""
    net = Net(14)
    x, _ = net.source((1, 16, 6, 6))
    w, _ = net.weights((16, 16, 1, 1))
    bias = net.rng.integers(-900, 900, 16, np.int32)
    y = (np.float32(0.08), np.uint8(101))
    parameters = (x.scale, x.zero, w.stored, w.scale, w.zero, *y, bias)
    names = [net.g.constant(np.asarray(value)) for value in parameters]
    found = net.g.node(op("QLinearConv"), "x0", *names)
    unit = (float(x.scale) * w.scale.astype(np.float64)).reshape(-1, 1, 1)
    real = convolved(x.real, w.real) + bias.reshape(-1, 1, 1) * unit
    (got,), kernels = net.run(found)
    agrees(got, stored(real, *y))
    assert IN_FLOAT32 or [one for one, _ in kernels] == ["dovetail::QuantizedConv"]


NUMBERS = ("bias", "weights", "source", "result", "zero", "residual")


@pytest.mark.parametrize("ends", ["stored", "real", "added"])
@pytest.mark.parametrize("changed", NUMBERS)
def test_convolutions_that_differ_in_one_number(changed, ends):
    """Numbers that are computed of scales, zero points and bias are kept for nodes in which all of these are equal."""
    net = Net(20)
    data, more = (net.rng.integers(0, 256, dims, np.uint8) for dims in ((2, 3, 6, 5), (2, 5, 4, 3)))
    kernel, shifts = net.rng.integers(-99, 99, (5, 3, 3, 3), np.int8), net.rng.integers(-9000, 9000, 5, np.int32)
    steps = net.rng.uniform(0.002, 0.01, 5).astype(np.float32)
    outputs, wants = [], []
    for number in range(2):
        factor = {name: 1 + number * (name == changed) for name in NUMBERS}
        x = Numbers(data, np.float32(0.03 * factor["source"]), np.uint8(40 * factor["zero"]))
        w = Numbers(kernel, steps * np.float32(factor["weights"]), np.zeros(5, np.int8), 0)
        b = Numbers(shifts * np.int32(factor["bias"]), np.full(5, 2e-4, np.float32), np.zeros(5, np.int32), 0)
        added = Numbers(more, np.float32(0.05 * factor["residual"]), np.uint8(9))
        inputs = [net.g.input(f"x{i}{number}", "uint8", array.shape) for i, array in enumerate((data, more))]
        net.feeds.update(zip(inputs, (data, more), strict=True))
        parameters = [net.dequantized(net.g.constant(one.stored), one) for one in (w, b)]
        y = net.g.node(op("Conv"), net.dequantized(inputs[0], x), *parameters)
        want, scale = convolved(x.real, w.real) + b.real[None, :, None, None], np.float32(0.1 * factor["result"])
        if ends == "added":
            y, want = net.g.node(op("Add"), y, net.dequantized(inputs[1], added)), want + added.real
        outputs.append(y if ends == "real" else net.quantized(y, scale, np.uint8(128)))
        wants.append(want if ends == "real" else stored(want, scale, np.uint8(128)))
    for got, want in zip(net.run(*outputs)[0], wants, strict=True):
        if ends == "real":
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
        else:
            agrees(got, want)


def test_a_sum_with_one_element_in_each_channel():
    """By a number for each channel: oneDNN's fused product would take the first one for all."""
    net = Net(31)
    (a, x), (b, y) = net.source((2, 3, 1, 1)), net.source((2, 3, 1, 1))
    factors = np.float32([1, 2, 4]).reshape(1, 3, 1, 1)
    product = net.g.node(op("Mul"), net.g.node(op("Add"), x, y), net.g.constant(factors))
    scale, zero = np.float32(0.05), np.uint8(90)
    result = net.g.node(op("QuantizeLinear"), product, net.g.constant(scale), net.g.constant(zero))
    with Core().compile_model(net.g.model([result]), "ONEDNN") as compiled:
        got = compiled(net.feeds)[result]
    want = stored((a.real + b.real) * factors, scale, zero)
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@pytest.mark.parametrize("dims", [(1, 192, 7, 7), (3, 17, 56, 56), (2, 384, 5, 9)])
@pytest.mark.parametrize("zero", [0, 128, 129])
@pytest.mark.parametrize("per_channel", [False, True])
def test_every_layout_of_a_dequantization(dims, zero, per_channel):
    """With a zero point, oneDNN's reorders between layouts lose it where they transpose in blocks that leave a rest."""
    rng = np.random.default_rng(zero)
    scale = np.asarray(rng.uniform(0.01, 0.1, dims[1] if per_channel else ()), np.float32)
    zeros = np.full_like(scale, zero, np.uint8)
    x = Numbers(rng.integers(0, 256, dims).astype(np.uint8), scale, zeros)
    kernel = KernelTable("dovetail_cpu_onednn.kernels", ("dovetail_ops_onnx",))[op("DequantizeLinear")][0]
    parameters = [TensorType(DType.of(value.dtype), value.shape, value) for value in (scale, zeros)]
    plain = TypedNode(
        Node("n", op("DequantizeLinear"), ("x", "s", "z"), ("y",)),
        (TensorType(DType.UINT8, dims), *parameters),
        (TensorType(DType.FLOAT32, dims),),
    )
    for config in kernel.configurations(plain):
        src, dst = plain.inputs[0].with_layout(config.inputs[0]), plain.outputs[0].with_layout(config.outputs[0])
        if not (src.layout.is_permutation and dst.layout.is_permutation):
            continue
        stage = kernel.plan(replace(plain, inputs=(src, *parameters), outputs=(dst,)), True, False).stages[0]
        y = np.zeros(dst.memory_dims, np.float32)
        given = {"input": np.ascontiguousarray(x.stored.transpose(src.order)), "output": y}
        held = [(a, given.get(a.place, a.value)) for a in stage.arguments]
        library().execute(stage.desc, [(a.arg, a.desc, array.ctypes.data) for a, array in held])
        np.testing.assert_allclose(y, x.real.transpose(dst.order), rtol=1e-6, err_msg=str(config))
