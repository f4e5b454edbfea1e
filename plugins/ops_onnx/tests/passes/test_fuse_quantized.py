"""Quantized operators from graphs of DequantizeLinear and QuantizeLinear: what is merged, where it ends, and the same results."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from dovetail.device import PostOps
from dovetail.graph import GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx import find
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.passes.expand_quantized import expand_quantized
from dovetail_ops_onnx.passes.fuse_integer_product import fuse_integer_products
from dovetail_ops_onnx.passes.fuse_quantized import HeldDequantizeLinear, fuse_quantized, hold_quantized, release_quantized
from dovetail_ops_onnx.passes.move_quantized import move_quantized
from dovetail_ops_onnx.quantized import Quantized, Scaling

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

OPSET = 17


def op(name, **attributes):
    return find(name, OPSET)(**attributes)


def quantize(graph, keeps):
    """The passes of the stage `quantize`, in order."""
    for one in (fuse_integer_products, expand_quantized, move_quantized, fuse_quantized):
        graph = one(graph, keeps)
    return release_quantized(graph)


class Builder(GraphBuilder):
    """A graph builder with quantization by random parameters."""

    def __init__(self, seed=1):
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.parameters = {}

    def stored(self, name, shape):
        """An input of uint8 with parameters of its own."""
        self.parameters[name] = (self.constant(np.float32(self.rng.uniform(0.01, 0.05))), self.constant(np.uint8(117)))
        return self.input(name, "uint8", shape)

    def real(self, name):
        """The number that a stored value represents."""
        return self.node(op("DequantizeLinear"), name, *self.parameters[name])

    def weights(self, *shape):
        """Real weights of a constant of int8 with a scale for each output channel."""
        stored = self.constant(self.rng.integers(-128, 128, shape, np.int8))
        scale = self.constant(self.rng.uniform(0.01, 0.02, shape[0]).astype(np.float32))
        return self.node(op("DequantizeLinear", axis=0), stored, scale, self.constant(np.zeros(shape[0], np.int8)))

    def bias(self, size):
        """A real bias of a constant of int32."""
        stored = self.constant(self.rng.integers(-900, 900, size, np.int32))
        return self.node(op("DequantizeLinear", axis=0), stored, self.constant(np.full(size, 3e-4, np.float32)))

    def store(self, value, scale=0.07, zero=99):
        """A real value quantized to uint8."""
        parameters = (self.constant(np.float32(scale)), self.constant(np.uint8(zero)))
        found = self.node(op("QuantizeLinear"), value, *parameters)
        self.parameters[found] = parameters
        return found

    def convolution(self, value, maps=5, channels=3):
        return self.node(op("Conv"), value, self.weights(maps, channels, 2, 2), self.bias(maps))


def fused(g, outputs, keeps=lambda node, graph: True, atol=0):
    """The graph after fusion, which must give the same as before; `atol` counts quanta."""
    before = fold_constants(hold_quantized(g.graph(outputs)))
    after = drop_dead_nodes(quantize(before, keeps))
    feeds = {n: g.rng.integers(0, 256, before.types[n].dims, np.uint8) for n in before.inputs}
    for one, other in zip(evaluated(before, feeds), evaluated(after, feeds), strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0, atol=atol)
    return after


def kinds(graph):
    return [node.op.key for node in graph.nodes]


def test_a_convolution_becomes_one_operator():
    g = Builder()
    after = fused(g, [g.store(g.convolution(g.real(g.stored("x", (2, 3, 5, 4)))))])
    (node,) = after.nodes
    assert node.op.key == "dovetail::QuantizedConv"
    assert [after.types[name].dtype.value for name in node.inputs] == ["uint8", "int8", "float32"]
    assert after.types[node.outputs[0]].dtype.value == "uint8"
    assert len(node.origins) == 2


def test_weights_that_are_read_as_they_are_stored_are_not_made_real(monkeypatch):
    g = Builder()
    before = fold_constants(hold_quantized(g.graph([g.store(g.convolution(g.real(g.stored("x", (2, 3, 5, 4)))))])))
    merged, made = fuse_quantized(before, lambda node, graph: True), []
    monkeypatch.setattr(DequantizeLinear, "reference", lambda self, x, *_: made.append(x.shape))
    assert kinds(release_quantized(merged)) == ["dovetail::QuantizedConv"]
    assert made == []


def test_a_residual_sum_with_its_quantizations_goes_along():
    g = Builder()
    x = g.stored("x", (1, 3, 5, 4))
    shortcut = g.store(g.convolution(g.real(x)), 0.05, 130)
    body = g.store(g.convolution(g.real(x)), 0.06, 120)
    total = g.node(op("Relu"), g.node(op("Add"), g.real(body), g.real(shortcut)))
    after = fused(g, [g.store(total)])
    first, second = after.nodes
    assert [type(step).__name__ for step in second.op.steps] in (
        ["QuantizedStep", "Scaling", "QuantizedStep", "QuantizedStep"],
        ["QuantizedStep"],
    )
    longest = max((first, second), key=lambda node: len(node.op.steps))
    assert len(longest.op.steps) == 4
    assert isinstance(longest.op.steps[1], Scaling)


def test_the_longest_chain_that_the_device_takes():
    g = Builder()
    x = g.stored("x", (1, 3, 5, 4))
    body = g.store(g.convolution(g.real(x)), 0.06, 120)
    after = fused(g, [g.store(g.node(op("Relu"), g.real(body)))], lambda node, _: len(node.op.steps) == 1)
    assert kinds(after) == ["dovetail::QuantizedConv", "dovetail::QuantizedRelu"]


def test_a_result_may_stay_real():
    g = Builder()
    after = fused(g, [g.node(op("Relu"), g.convolution(g.real(g.stored("x", (1, 3, 5, 4)))))])
    (node,) = after.nodes
    assert node.op.result is None
    assert after.types[node.outputs[0]].dtype.value == "float32"


def test_a_result_may_be_rounded_and_real():
    g = Builder()
    after = fused(g, [g.real(g.store(g.convolution(g.real(g.stored("x", (1, 3, 5, 4))))))])
    (node,) = after.nodes
    assert node.op.result is None
    assert isinstance(node.op.steps[-1], Scaling)
    assert after.types[node.outputs[0]].dtype.value == "float32"


def test_a_rounded_value_that_others_read_stays_stored():
    g = Builder()
    body = g.real(g.store(g.convolution(g.real(g.stored("x", (1, 3, 5, 4))))))
    after = fused(g, [body, g.node(op("Softmax"), body)])
    assert kinds(after) == ["dovetail::QuantizedConv", "DequantizeLinear", "dovetail::QuantizedSoftmax"]


def test_a_value_that_others_read_ends_a_chain():
    g = Builder()
    body = g.convolution(g.real(g.stored("x", (1, 3, 5, 4))))
    after = fused(g, [g.store(body), body])
    assert kinds(after) == ["dovetail::QuantizedConv", "QuantizeLinear"]


UNUSUAL = pytest.mark.parametrize("scale", [-0.02, 0.0, 1e-40, 3e38, float("nan")])


@UNUSUAL
@pytest.mark.parametrize("place", ["source", "weights", "result"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_operators_beside_unusual_scales_end_there(place, scale):
    """Kernels divide scales by each other, and apply ReLU to numbers in units of the result."""
    g = Builder()
    x = g.stored("x", (1, 3, 5, 4))
    if place == "source":
        g.parameters[x] = (g.constant(np.float32(scale)), g.constant(np.uint8(117)))
    weights = g.constant(g.rng.integers(-128, 128, (5, 3, 2, 2), np.int8))
    scales = g.constant(np.array([0.01, 0.02, scale if place == "weights" else 0.01, 0.02, 0.01], np.float32))
    w = g.node(op("DequantizeLinear", axis=0), weights, scales, g.constant(np.zeros(5, np.int8)))
    y = g.node(op("Relu"), g.node(op("Conv"), g.real(x), w, g.bias(5)))
    after = fused(g, [g.store(y, scale if place == "result" else 0.07)])
    quantizations = [scaling for node in after.nodes if isinstance(node.op, Quantized) for scaling in node.op.scalings if scaling]
    assert all((scaling.scale > 0.005).all() and (scaling.scale < 0.1).all() for scaling in quantizations)
    wanted = {"source": "DequantizeLinear", "weights": "dovetail::QuantizedConv", "result": "dovetail::QuantizedConv"}
    assert kinds(after)[0] == wanted[place]
    assert ("QuantizeLinear" in kinds(after)) == (place == "result")


def test_without_a_kernel_everything_is_as_it_was_and_folded():
    g = Builder()
    after = fused(g, [g.store(g.convolution(g.real(g.stored("x", (2, 3, 5, 4)))))], lambda node, _: False)
    assert kinds(after) == ["DequantizeLinear", "Conv", "QuantizeLinear"]
    assert not [node for node in after.nodes if isinstance(node.op, HeldDequantizeLinear)]
    assert after.types[after.nodes[1].inputs[1]].value is not None


def test_a_graph_without_quantization_comes_back():
    g = GraphBuilder()
    graph = fold_constants(g.graph([g.node(op("Relu"), g.input("x", "float32", (2, 3)))]))
    assert quantize(graph, lambda node, _: True) is graph


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_qlinear_conv_counts_where_a_device_keeps_it(kept, bias):
    g = Builder()
    x = g.stored("x", (1, 3, 5, 4))
    w = g.constant(g.rng.integers(-128, 128, (5, 3, 2, 2), np.int8))
    w_scale = g.constant(g.rng.uniform(0.01, 0.02, 5).astype(np.float32))
    result = (g.constant(np.float32(0.3)), g.constant(np.uint8(88)))
    inputs = [x, *g.parameters[x], w, w_scale, g.constant(np.zeros(5, np.int8)), *result]
    inputs += [g.constant(g.rng.integers(-900, 900, 5, np.int32))] if bias else []
    y = g.node(op("QLinearConv"), *inputs)
    g.parameters[y] = result
    known = "QuantizedConv" if kept else "QLinearConv"
    after = fused(g, [g.store(g.node(op("Relu"), g.real(y)))], lambda node, _: node.op.op_type == known, 1)
    wanted = ["dovetail::QuantizedConv"] if kept else ["QLinearConv", "DequantizeLinear", "Relu", "QuantizeLinear"]
    assert kinds(after) == wanted


def test_qlinear_mat_mul_counts():
    g = Builder()
    x = g.stored("x", (4, 3))
    w = g.constant(g.rng.integers(-128, 128, (3, 5), np.int8))
    w_scale = g.constant(g.rng.uniform(0.01, 0.02, 5).astype(np.float32))
    result = (g.constant(np.float32(0.3)), g.constant(np.uint8(88)))
    y = g.node(op("QLinearMatMul"), x, *g.parameters[x], w, w_scale, g.constant(np.zeros(5, np.int8)), *result)
    assert kinds(fused(g, [y], atol=1)) == ["dovetail::QuantizedMatMul"]


@pytest.mark.parametrize("shapes", [((2, 3, 4, 9), (2, 3, 9, 5)), ((7, 9), (9, 1)), ((9,), (3, 9, 2)), ((4, 9), (9,))], ids=str)
def test_a_product_without_a_kernel_counts_in_whole_numbers(shapes):
    """Two values that are computed, as in attention: sums are exact."""
    g = Builder()
    a, b = (g.stored(name, shape) for name, shape in zip("ab", shapes, strict=True))
    result = (g.constant(np.float32(0.3)), g.constant(np.uint8(88)))
    y = g.node(op("QLinearMatMul"), a, *g.parameters[a], b, *g.parameters[b], *result)
    after = fused(g, [y], lambda node, _: False)
    assert kinds(after) == ["DequantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear"]
    assert [after.types[node.inputs[1]].value.item() for node in after.nodes[:2]] == [1, 1]
    kept = expand_quantized(fold_constants(g.graph([y])), lambda node, _: node.op.op_type == "QLinearMatMul")
    assert kinds(kept) == ["QLinearMatMul"]


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("batch_of_w", [(), (1,)])
@pytest.mark.parametrize("rows", [3, 5])
def test_products_of_batches_without_a_kernel_have_scales_of_columns(batch, batch_of_w, rows):
    """The columns are the last axis of the result, whose rank may not be that of the weights; 5 rows fit the wrong axis too."""
    g = Builder()
    x = g.stored("x", (*batch, rows, 4))
    w = g.constant(g.rng.integers(-128, 128, (*batch_of_w, 4, 5)).astype(np.int8))
    w_scale, w_zero = g.constant(g.rng.uniform(0.01, 0.02, 5).astype(np.float32)), g.constant(np.zeros(5, np.int8))
    result = (g.constant(np.float32(0.3)), g.constant(np.uint8(88)))
    y = g.node(op("QLinearMatMul"), x, *g.parameters[x], w, w_scale, w_zero, *result)
    after = fused(g, [y], lambda node, _: False)
    assert kinds(after) == ["DequantizeLinear", "MatMul", "QuantizeLinear"]
    assert after.nodes[-1].op.axis == after.types[after.nodes[-1].inputs[0]].rank - 1


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 5])
def test_a_convolution_without_a_kernel_counts_in_whole_numbers(count, bias):
    """Weights of uint8 with zero points."""
    g = Builder()
    x = g.stored("x", (2, 3, 5, 4))
    shape = () if count == 1 else (count,)
    w, w_zero = (g.constant(g.rng.integers(0, 256, dims).astype(np.uint8)) for dims in ((5, 3, 2, 2), shape))
    w_scale = g.constant(g.rng.uniform(0.01, 0.02, shape).astype(np.float32))
    inputs = [x, *g.parameters[x], w, w_scale, w_zero, g.constant(np.float32(0.3)), g.constant(np.uint8(88))]
    inputs += [g.constant(g.rng.integers(-9000, 9000, 5).astype(np.int32))] if bias else []
    after = fused(g, [g.node(op("QLinearConv", pads=(1, 0, 1, 1)), *inputs)], lambda node, _: False)
    assert kinds(after) == ["DequantizeLinear", "Conv", "QuantizeLinear"]
    assert (after.types[after.nodes[1].inputs[1]].value % 1 == 0).all()


@pytest.mark.parametrize(
    ("depth", "bytes_of_w", "exact"), [(258, None, True), (259, None, False), (600, 100, True), (600, 255, False)]
)
def test_sums_beyond_the_whole_numbers_of_float32_stay(depth, bytes_of_w, exact):
    """65,025 * 259 is the first product above 2^24; of constants the numbers themselves count."""
    g = Builder()
    zero, scale = g.constant(np.uint8(0)), g.constant(np.float32(0.01))
    a, b = g.input("a", "uint8", (4, depth)), g.input("b", "uint8", (depth, 5))
    if bytes_of_w is not None:
        b = g.constant(np.full((depth, 5), bytes_of_w, np.uint8))
    y = g.node(op("QLinearMatMul"), a, scale, zero, b, scale, zero, g.constant(np.float32(9)), zero)
    after = expand_quantized(fold_constants(g.graph([y])), lambda node, _: False)
    assert ("QLinearMatMul" not in kinds(after)) == exact


@pytest.mark.parametrize(
    ("other", "questions"),
    [
        ({}, 1),
        ({"x_scale": 0.04, "w_scale": 0.002, "y_scale": 0.7, "x_zero": 3, "y_zero": 255}, 1),
        ({"x_zero": 0}, 2),
        ({"y_zero": 0}, 2),
        ({"w_zero": 1}, 2),
        ({"x_scale": 1e-10}, 2),
        ({"y_scale": 1e10}, 2),
        ({"pads": (1, 0, 1, 1)}, 2),
        ({"maps": 6}, 2),
        ({"bias": False}, 2),
    ],
)
def test_a_device_is_asked_once_for_each_kind(other, questions):
    """Of nodes that differ in numbers which no kernel decides by."""
    g, asked = Builder(), []
    x = g.input("x", "uint8", (2, 3, 5, 4))

    def stored(x_scale=0.02, x_zero=117, w_scale=0.01, w_zero=0, y_scale=0.3, y_zero=88, maps=5, bias=True, pads=(0, 0, 0, 0)):
        w = g.constant(g.rng.integers(-128, 128, (maps, 3, 2, 2)).astype(np.int8))
        result = (g.constant(np.float32(y_scale)), g.constant(np.uint8(y_zero)))
        source = (g.constant(np.float32(x_scale)), g.constant(np.uint8(x_zero)))
        inputs = [x, *source, w, g.constant(np.float32(w_scale)), g.constant(np.int8(w_zero)), *result]
        inputs += [g.constant(g.rng.integers(-9000, 9000, maps).astype(np.int32))] if bias else []
        return g.node(op("QLinearConv", pads=pads), *inputs)

    graph = fold_constants(g.graph([stored(), stored(**other)]))
    after = expand_quantized(graph, lambda node, _: asked.append(node) or True)
    assert kinds(after) == ["DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"] * 2
    assert len(asked) == questions


def test_nodes_with_post_ops_stay():
    g = Builder()
    x = g.stored("x", (4, 3))
    y = g.node(op("Relu"), g.real(x), post_ops=PostOps().append_eltwise("square"))
    graph = fold_constants(hold_quantized(g.graph([g.store(y)])))
    assert kinds(quantize(graph, lambda node, _: True)) == ["DequantizeLinear", "Relu", "QuantizeLinear"]
