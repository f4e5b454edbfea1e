"""Decisions of an earlier plan about values that the model does not name: those of compositions, and those that passes made."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.evaluate.composition import infer_composition
from dovetail.op import GraphBuilder, Operator, TensorType
from dovetail.testing.random_graphs import evaluate
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.einsum import Einsum
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.passes._decisions import _Inferred
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.unsqueeze import Unsqueeze

shared = runpy.run_path(str(Path(__file__).with_name("_taken_over.py")))
RNG, numbers, was_taken_over = (shared[name] for name in ("RNG", "numbers", "was_taken_over"))

DEVICES = ["NUMPY", "ONEDNN"]


def dims(g: GraphBuilder, x: str) -> tuple[int, ...]:
    found = g.type_of(x)
    assert found is not None
    return found.dims


def like(g: GraphBuilder, x: str, array: Any) -> str:
    """A constant of the data type of an input."""
    found = g.type_of(x)
    assert found is not None
    return g.constant(np.asarray(array, found.dtype.numpy))


class Composed(Operator):
    """An operator whose types are those of its composition."""

    domain = "test"

    def infer(self, x: TensorType) -> TensorType:
        return infer_composition(self, [x])[0]


class Norm(Composed):
    """No constant and no attribute depends on sizes."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        total = g.node(ReduceSum(), g.node(Mul(), x, x), g.constant(np.array([-1])))
        return str(g.node(Sqrt(), total))


class Nested(Composed):
    """A composition in another one, twice."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        return str(g.node(Mul(), g.node(Norm(), g.node(Tanh(), x)), g.node(Norm(), x)))


class Mean(Composed):
    """A number, in the chain of another node, depends on a size."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        total = g.node(ReduceSum(), x, g.constant(np.array([-1])))
        return str(g.node(Mul(), total, like(g, x, 1 / dims(g, x)[-1])))


class Flattened(Composed):
    """Two views whose shapes are constants of sizes; the second one is that of the input, with two axes exchanged."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        n, m, k = dims(g, x)
        flat = g.node(Relu(), g.node(Reshape(), x, g.constant(np.array([n * m, k]))))
        return str(g.node(Reshape(), flat, g.constant(np.array([m, n, k]))))


class ByLength(Composed):
    """Other nodes from a length of 9 on."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        return str(g.node(Relu() if dims(g, x)[-1] > 8 else Tanh(), x))


class Weighted(Composed):
    """A constant of many numbers, which plans would keep alive."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        return str(g.node(MatMul(), x, like(g, x, np.ones((dims(g, x)[-1], 70)))))


def compared(model: dovetail.Model, device: str, *shapes: tuple[int, ...]) -> list[bool]:
    """For each shape whether its plan took over decisions, after its results were compared with float64."""
    compiled, taken = dovetail.Core(config=False).compile_model(model, device), []
    for shape in shapes:
        x = numbers(*shape)
        for found, wanted in zip(compiled({"x": x}).values(), evaluate(model, {"x": x}), strict=True):
            assert found.shape == wanted.shape
            assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)
        taken.append(was_taken_over(compiled))
    return taken


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("op", "taken"),
    [
        (Norm(), [False, True, True, True]),
        (Nested(), [False, True, True, True]),
        (Mean(), [False, True, True, True]),
        (Flattened(), [False, True, True, True]),
        (ByLength(), [False, False, True, True]),
        (Weighted(), [False, False, False, False]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operator) else "",
)
def test_compositions(device: str, op: Operator, taken: list[bool]) -> None:
    g = GraphBuilder()
    x = g.node(Relu(), g.input("x", "float32", ["N", "M", "K"]))
    first, other = g.node(op, x), g.node(op, g.node(Tanh(), x))
    model = g.model([g.node(Relu(), g.node(Add(), first, other)), first])
    assert compared(model, device, (4, 5, 7), (6, 9, 12), (3, 6, 8), (7, 10, 20)) == taken


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_of_a_composition_that_was_none_by_chance(device: str) -> None:
    """[3, 3, K] is exchanged with itself, and dropped."""
    g = GraphBuilder()
    model = g.model([g.node(Relu(), g.node(Flattened(), g.input("x", "float32", ["N", "M", "K"])))])
    assert compared(model, device, (3, 3, 7), (4, 5, 7), (6, 7, 9)) == [False, False, True]


class Scaled(Composed):
    """A factor of a size, which folds into weights."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        return str(g.node(Mul(), x, like(g, x, dims(g, x)[-1])))


class Shifted(Composed):
    """The same, and another node reads the number too."""

    def compose(self, g: GraphBuilder, x: str) -> str:
        size = like(g, x, dims(g, x)[-1])
        return str(g.node(Add(), g.node(Tanh(), g.node(Mul(), x, size)), size))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", [Scaled(), Shifted()], ids=["scaled", "shifted"])
def test_a_number_of_a_composition_that_folds_into_weights(device: str, op: Operator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 4, "H", "W"])
    model = g.model([g.node(op, g.node(Conv(), x, g.constant(numbers(6, 4, 3, 3) / 50)))])
    assert compared(model, device, (2, 4, 9, 7), (2, 4, 11, 8), (2, 4, 13, 10)) == [False, False, False]


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_whose_shape_its_content_decides(device: str) -> None:
    """NonZero of numbers that depend on sizes alone."""
    g = GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    count = g.node(Squeeze(), g.node(Slice(), g.node(Shape(), x), g.constant(np.array([0])), g.constant(np.array([1]))))
    every = g.node(Range(), g.constant(np.int64(0)), count, g.constant(np.int64(1)))
    rows = g.node(Squeeze(), g.node(NonZero(), every), g.constant(np.array([0])))
    model = g.model([g.node(Relu(), g.node(Gather(), x, rows))])
    assert compared(model, device, (4, 5), (9, 5), (7, 5)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_a_constant_of_sizes_in_another_layout(device: str) -> None:
    """The convolution has its channels last on ONEDNN, and what is added has as many columns."""
    g = GraphBuilder()
    x = g.input("x", "float32", [1, 96, "L"])
    first = g.node(Conv(pads=(2, 2)), x, g.constant(numbers(192, 96, 5)))
    shift = g.node(Expand(), g.constant(numbers(1, 192, 1)), g.node(Shape(), first))
    model = g.model([g.node(Tanh(), g.node(Add(), first, shift))])
    assert compared(model, device, (1, 96, 50), (1, 96, 81), (1, 96, 33)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_of_an_einsum(device: str) -> None:
    """Its product has the axes h, b * w, c."""
    g = GraphBuilder()
    x = g.input("x", "float32", ["B", 3, "W", 5])
    model = g.model([g.node(Relu(), g.node(Einsum(equation="bhwc,hkc->bhwk"), x, g.constant(numbers(3, 7, 5))))])
    assert compared(model, device, (8, 3, 11, 5), (4, 3, 9, 5), (9, 3, 14, 5), (13, 3, 2, 5)) == [False, True, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_keys_whose_heads_are_flat(device: str) -> None:
    """Attention gets a view of keys that are [batch * heads, length, size]."""
    g = GraphBuilder()
    x = g.input("x", "float32", ["B", "L", 12])
    batch, length = (g.node(Gather(), g.node(Shape(), x), g.constant(np.array([axis]))) for axis in (0, 1))
    heads, one, size = (g.constant(np.array([n])) for n in (3, -1, 4))
    q, k, v = (
        g.node(Transpose(perm=(0, 2, 1, 3)), g.node(Reshape(), product, g.constant(np.array([0, 0, 3, 4]))))
        for product in [g.node(MatMul(), x, g.constant(numbers(12, 12))) for _ in range(3)]
    )
    flat = g.node(Reshape(), g.node(Mul(), k, g.constant(numbers(4))), g.node(Concat(axis=0), one, length, size))
    turned = g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1)), flat), g.node(Concat(axis=0), batch, heads, size, length))
    scores = g.node(Mul(), g.node(MatMul(), q, turned), g.constant(np.float32(0.5)))
    joined = g.node(Transpose(perm=(0, 2, 1, 3)), g.node(MatMul(), g.node(Softmax(axis=-1), scores), v))
    model = g.model([g.node(Reshape(), joined, g.constant(np.array([0, 0, 12])))])
    first = dovetail.Core(config=False).compile_model(model, device).report({"x": (2, 7, 12)})
    assert "Attention" in {node.op for node in first.nodes}
    assert compared(model, device, (2, 7, 12), (5, 9, 12), (6, 11, 12)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_heads_that_are_repeated_in_a_shape_of_sizes(device: str) -> None:
    """Attention takes keys and values before they are repeated, where it can: then nothing reads the shape."""
    g = GraphBuilder()
    x = g.input("x", "float32", ["B", "L", 12])
    batch, length = (g.node(Gather(), g.node(Shape(), x), g.constant(np.array([axis]))) for axis in (0, 1))
    two, size = g.constant(np.array([2])), g.constant(np.array([4]))
    repeated = g.node(Concat(axis=0), batch, two, two, length, size)
    heads = []
    for count in (4, 2, 2):
        product = g.node(MatMul(), x, g.constant(numbers(12, count * 4)))
        parts = g.node(Reshape(), product, g.constant(np.array([0, 0, count, 4])))
        heads.append(g.node(Transpose(perm=(0, 2, 1, 3)), parts))
    q, *others = heads
    k, v = (
        g.node(
            Reshape(),
            g.node(Expand(), g.node(Unsqueeze(), one, g.constant(np.array([2]))), repeated),
            g.constant(np.array([0, 4, -1, 4])),
        )
        for one in others
    )
    joined = g.node(Transpose(perm=(0, 2, 1, 3)), g.node(Attention(), q, k, v))
    model = g.model([g.node(Reshape(), joined, g.constant(np.array([0, 0, 16])))])
    assert compared(model, device, (3, 7, 12), (5, 9, 12), (6, 11, 12)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_reductions_and_views_of_images_that_were_square(device: str) -> None:
    g = GraphBuilder()
    x = g.node(Conv(pads=(1, 1, 1, 1)), g.input("x", "float32", [2, 16, "H", "W"]), g.constant(numbers(32, 16, 3, 3)))
    rows = g.node(ReduceSum(), x, g.constant(np.array([-1])))
    groups = g.node(Reshape(), x, g.constant(np.array([0, 4, -1])))
    model = g.model([rows, g.node(Relu(), groups)])
    assert compared(model, device, (2, 16, 32, 32), (2, 16, 24, 40), (2, 16, 9, 9)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_halves(device: str) -> None:
    """A table of positions of which sizes take a part, which becomes float32."""
    g = GraphBuilder()
    x = g.input("x", "float32", ["N", "L", 8])
    last = g.node(Slice(), g.node(Shape(), x), g.constant(np.array([1])), g.constant(np.array([2])))
    table = g.constant(numbers(1, 50, 8).astype(np.float16))
    positions = g.node(Slice(), table, g.constant(np.array([0])), last, g.constant(np.array([1])))
    whole = g.node(Add(), g.node(Cast(to=dovetail.DType.FLOAT16), x), positions)
    found = g.node(MatMul(), whole, g.constant((numbers(8, 8) / 8).astype(np.float16)))
    model = g.model([g.node(Cast(to=dovetail.DType.FLOAT32), g.node(Relu(), found))])
    compiled, taken = dovetail.Core(config=False).compile_model(model, device), []
    for n, length in ((2, 7), (3, 20), (5, 11)):
        array = numbers(n, length, 8)
        fresh = dovetail.Core(config=False).compile_model(model, device)({"x": array})
        for one, other in zip(compiled({"x": array}).values(), fresh.values(), strict=True):
            assert np.array_equal(one, other)
        taken.append(was_taken_over(compiled))
    assert taken == [False, True, True]


def grouped(groups: int, images: int = 0) -> dovetail.Model:
    """A normalization of groups as PyTorch exports it, of images whose number is that of all, or a constant."""
    g = GraphBuilder()
    x = g.node(Conv(pads=(1, 1, 1, 1)), g.input("x", "float32", ["N", 3, "H", "W"]), g.constant(numbers(16, 3, 3, 3)))
    shape = g.constant(np.array([images, groups, -1]))
    ones, zeros = g.constant(np.ones(groups, np.float32)), g.constant(np.zeros(groups, np.float32))
    inner = g.node(InstanceNormalization(), g.node(Reshape(), x, shape), ones, zeros)
    scaled = g.node(Mul(), g.node(Reshape(), inner, g.node(Shape(), x)), g.constant(numbers(16, 1, 1)))
    return g.model([g.node(Relu(), g.node(Add(), scaled, g.constant(numbers(16, 1, 1))))])


@pytest.mark.parametrize("device", DEVICES)
def test_groups_as_many_as_rows_and_columns(device: str) -> None:
    """Channels, groups, rows and columns say nothing of each other."""
    model = grouped(4)
    first = dovetail.Core(config=False).compile_model(model, device).report({"x": (2, 3, 16, 4)})
    assert device == "NUMPY" or "GroupNormalization" in {node.op for node in first.nodes}
    assert compared(model, device, (2, 3, 16, 4), (3, 3, 4, 16), (5, 3, 7, 9)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_groups_of_another_number_of_images(device: str) -> None:
    """More images cut into as many groups are not a normalization of groups."""
    assert compared(grouped(4, images=2), device, (2, 3, 8, 5), (2, 3, 6, 7), (4, 3, 8, 5), (6, 3, 8, 5))[:2] == [False, True]


class Widened(Composed):
    """Weights of 8 bits, as floats."""

    inputs = ("x: T", "w: T2")
    types = {"T": frozenset({dovetail.DType.FLOAT32, dovetail.DType.FLOAT64}), "T2": frozenset({dovetail.DType.INT8})}

    def infer(self, x: TensorType, w: TensorType) -> TensorType:  # type: ignore[override]
        return infer_composition(self, [x, w])[0]

    def compose(self, g: GraphBuilder, x: str, w: str) -> str:  # type: ignore[override]
        found = g.type_of(x)
        assert found is not None
        return str(g.node(MatMul(), x, g.node(Mul(), g.node(Cast(to=found.dtype), w), like(g, x, 0.1))))


@pytest.mark.parametrize("device", DEVICES)
def test_a_composition_that_makes_floats_of_weights(device: str) -> None:
    g = GraphBuilder()
    w = g.constant(RNG.integers(-9, 9, (9, 12)).astype(np.int8))
    model = g.model([g.node(Relu(), g.node(Widened(), g.node(Tanh(), g.input("x", "float32", ["N", 9])), w))])
    assert compared(model, device, (4, 9), (7, 9), (3, 9)) == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_transposes_of_axes_that_were_alike(device: str) -> None:
    g = GraphBuilder()
    x = g.node(Relu(), g.input("x", "float32", ["N", "L", "K"]))
    turned = g.node(Transpose(perm=(2, 0, 1)), g.node(Transpose(perm=(1, 0, 2)), x))
    assert compared(g.model([turned]), device, (4, 4, 2), (5, 4, 3), (3, 7, 9)) == [False, True, True]


def test_layers_that_a_pass_made_are_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of quantized rows, each by weights and a scale of its own."""
    g = GraphBuilder()
    value = g.input("x", "float32", ["N", 16])
    for scale in (0.01, 0.02, 0.03):
        rows, step, zero = g.node(DynamicQuantizeLinear(), value)
        weights = g.constant(RNG.integers(-9, 9, (16, 16), np.int8))
        sums = g.node(Cast(to=dovetail.DType.FLOAT32), g.node(MatMulInteger(), rows, weights, zero))
        value = g.node(Mul(), sums, g.node(Mul(), step, g.constant(np.float32([scale]))))
    model = g.model([value])
    asked, infer = [], MatMulIntegerToFloat.infer
    monkeypatch.setattr(MatMulIntegerToFloat, "infer", lambda self, *types: asked.append(types) or infer(self, *types))
    compiled, plain = (dovetail.Core(config=False).compile_model(model, device) for device in ("ONEDNN", "NUMPY"))
    for rows in (5, 6, 7, 70):
        asked.clear()
        x = numbers(rows, 16)
        (found,), (wanted,) = compiled({"x": x}).values(), plain({"x": x}).values()
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert was_taken_over(compiled)
    asked.clear()
    compiled.plan(((71, 16),))
    assert len(asked) == 1


def test_nodes_that_need_a_content_are_asked_one_by_one() -> None:
    """Both reshapes read a value of one type, and a constant of one type."""
    g = GraphBuilder()
    x = g.input("x", "float32", [4, 6])
    ends = [g.node(Reshape(), x, g.constant(np.array(shape))) for shape in ([3, -1], [-1, 3])]
    halves = [g.node(Mul(), x, g.constant(np.float32([factor]))) for factor in (0.5, 2)]
    graph = g.model([*ends, *halves]).graph
    types = {**graph.types, **{name: TensorType.of(a, known=True) for name, a in graph.constants.items()}}
    graph, numbers_of = graph.replace(types=types), dict[Any, Any]()
    found = [_Inferred.of(node, graph, graph.constants.keys(), numbers_of) for node in graph.nodes]
    assert [one.kind is None for one in found] == [True, True, False, False]
    assert found[2].kind == found[3].kind
    now, known = {**types, "x": TensorType(dovetail.DType.FLOAT32, (8, 9))}, dict[Any, Any]()
    assert [one.types(now, known)[0].dims for one in found] == [(3, 24), (24, 3), (8, 9), (8, 9)]
    assert found[2].types(now, known) is found[3].types(now, known)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_quantized_operators_are_apart_by_their_steps(device: str) -> None:
    """Two convolutions of one value, whose fields are no attributes, differ in their strides alone."""
    g = dovetail.GraphBuilder()
    scale, zero = g.constant(np.float32(0.05)), g.constant(np.uint8(100))
    x = g.input("x", "uint8", ["N", 16, "H", 12])
    weights = RNG.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8)
    parameters = g.constant(np.full(16, 0.004, np.float32)), g.constant(np.zeros(16, np.int8))
    outputs = []
    for stride in (1, 2):
        w = g.node(DequantizeLinear(axis=0), g.constant(weights), *parameters)
        y = g.node(Conv(strides=(stride, stride), pads=(1, 1, 1, 1)), g.node(DequantizeLinear(), x, scale, zero), w)
        outputs.append(g.node(QuantizeLinear(), y, scale, zero))
    model = g.model(outputs)
    compiled = dovetail.Core(config=False).compile_model(model, device)
    for shape in ((1, 16, 10, 12), (3, 16, 10, 12), (2, 16, 14, 12)):
        feeds = {"x": RNG.integers(0, 256, shape).astype(np.uint8)}
        expected = dovetail.Core(config=False).compile_model(model, device)(feeds)
        for index in range(2):
            np.testing.assert_array_equal(compiled(feeds)[index], expected[index])
    assert was_taken_over(compiled)
