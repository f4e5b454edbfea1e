"""Decisions of an earlier plan are taken over for other input sizes, and are not where sizes change them."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.errors import CompileError, DovetailError, OperatorError
from dovetail_cpu_numpy.device import NumpyDevice
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes import _typed_again, take_over
from dovetail_ops_onnx.q_linear_conv import QLinearConv
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.transpose import Transpose

shared = runpy.run_path(str(Path(__file__).with_name("_taken_over.py")))
RNG, convolutions, numbers, run, was_taken_over = (
    shared[name] for name in ("RNG", "convolutions", "numbers", "run", "was_taken_over")
)

DEVICES = ["NUMPY", "ONEDNN"]


def sizes(g: dovetail.GraphBuilder, x: str, axis: int) -> str:
    return g.node(Gather(), g.node(Shape(), x), g.constant(np.array([axis])))


@pytest.mark.parametrize("device", DEVICES)
def test_other_sizes_get_the_same_nodes(device: str) -> None:
    model = convolutions()
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert not run(compiled, model, x=numbers(2, 4, 9, 7))
    first = compiled.report()
    assert run(compiled, model, x=numbers(5, 4, 16, 11))
    again = compiled.report()
    assert [(n.name, n.op, n.post_ops, n.origins, n.provider) for n in again.nodes] == [
        (n.name, n.op, n.post_ops, n.origins, n.provider) for n in first.nodes
    ]
    assert len(first.nodes) < len(model.graph.nodes)
    assert [one.name for one in again.passes][-1] == "take_over"
    assert all(x.type.shape[:1] == (5,) for n in again.nodes for x in n.outputs if x.type.shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 4, 9, 7), (0, 4, 9, 7), (2, 4, 1, 7)])
def test_sizes_of_0_and_1_are_planned(device: str, shape: tuple[int, ...]) -> None:
    model = convolutions()
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert [run(compiled, model, x=numbers(2, 4, 9, 7)), run(compiled, model, x=numbers(*shape))] == [False, False]
    assert run(compiled, model, x=numbers(3, 4, 5, 8))
    assert [run(compiled, model, x=numbers(*shape[:3], 13))] == [True]


def test_layers_are_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 8])
    for _ in range(5):
        x = g.node(Add(), x, g.node(Relu(), g.node(MatMul(), x, g.constant(numbers(8, 8)))))
    model = g.model([x])
    compiled, asked, once = dovetail.Core(config=False).compile_model(model, "NUMPY"), list[int](), _typed_again._once

    def counted(step: Any, *rest: Any) -> Any:
        asked.append(step.kind)
        return once(step, *rest)

    monkeypatch.setattr(_typed_again, "_once", counted)
    counts = []
    for rows in (2, 3, 4, 7):
        asked.clear()
        run(compiled, model, x=numbers(rows, 8))
        counts.append(len(asked))
    assert counts == [0, 15, 3, 3], "the first time values are compared, from then on one layer serves for all"


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_that_passes_made_are_those_of_the_new_sizes(device: str) -> None:
    """A transpose and a reduction that move nothing become reshapes."""
    g = dovetail.GraphBuilder()
    x = g.node(Relu(), g.input("x", "float32", ["N", 1, "H", "W"]))
    turned = g.node(Transpose(perm=(1, 0, 2, 3)), x)
    reduced = g.node(ReduceMax(keepdims=False), x, g.constant(np.array([1])))
    model = g.model([g.node(Relu(), turned), g.node(Mul(), reduced, g.constant(numbers(1)))])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert [run(compiled, model, x=numbers(n, 1, h, w)) for n, h, w in ((2, 9, 7), (3, 4, 5), (7, 2, 8))] == [False, True, True]
    assert "Transpose" not in {node.op for node in compiled.report().nodes}
    assert not run(compiled, model, x=numbers(1, 1, 9, 7))


def quantized() -> dovetail.Model:
    """A convolution between quantized values, one of 8-bit operators, and a product that is quantized as it runs."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 4, "H", "W"])

    def stored(*shape: int) -> str:
        return g.constant(RNG.integers(-9, 9, shape).astype(np.int8))

    scale, zero, plain = g.constant(np.float32(0.0625)), g.constant(np.int8(3)), g.constant(np.int8(0))
    weights = g.node(DequantizeLinear(), stored(6, 4, 3, 3), scale, plain)
    image = g.node(DequantizeLinear(), g.node(QuantizeLinear(), x, scale, zero), scale, zero)
    first = g.node(QuantizeLinear(), g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), image, weights)), scale, zero)
    second = g.node(QLinearConv(), first, scale, zero, stored(5, 6, 1, 1), scale, plain, scale, zero)
    rows = g.node(Transpose(perm=(0, 2, 3, 1)), g.node(DequantizeLinear(), second, scale, zero))
    levels, step, start = g.node(DynamicQuantizeLinear(), rows)
    product = g.node(Cast(to=dovetail.DType.FLOAT32), g.node(MatMulInteger(), levels, stored(5, 7), start))
    return g.model([g.node(Mul(), product, g.node(Mul(), step, scale))])


@pytest.mark.parametrize("device", DEVICES)
def test_quantized_nodes(device: str) -> None:
    model, core = quantized(), dovetail.Core(config=False)
    compiled, taken = core.compile_model(model, device), []
    for shape in ((2, 4, 9, 7), (3, 4, 5, 8), (7, 4, 12, 3)):
        x = numbers(*shape)
        fresh = core.compile_model(model, device)
        (found,), (wanted,) = compiled(x).values(), fresh(x).values()
        assert np.array_equal(found, wanted)
        assert [(n.name, n.op, n.kernel) for n in compiled.report().nodes] == [
            (n.name, n.op, n.kernel) for n in fresh.report().nodes
        ]
        taken.append(was_taken_over(compiled))
    assert taken == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_tables_of_bytes(device: str) -> None:
    """They are whole numbers that passes made, but not of sizes."""
    g = dovetail.GraphBuilder()
    parameters = g.constant(np.float32(0.02)), g.constant(np.uint8(100))
    x = g.node(DequantizeLinear(), g.input("x", "uint8", ["N", 3, "W"]), *parameters)
    inner = g.node(QuantizeLinear(), g.node(Relu(), x), *parameters)
    y = g.node(QuantizeLinear(), g.node(Mul(), x, g.node(DequantizeLinear(), inner, *parameters)), *parameters)
    core = dovetail.Core(config=False)
    compiled = core.compile_model(g.model([y]), device)
    # By references, of which the tables are: a device may round otherwise between two bytes.
    fresh = core.compile_model(g.model([y]), "NUMPY", {"PASSES": "-tabulate_bytes,-tabulate_chains,-fuse_quantized"})
    for shape in ((2, 3, 7), (4, 3, 9)):
        feeds = {"x": RNG.integers(0, 256, shape).astype(np.uint8)}
        assert np.array_equal(compiled(feeds)[0], fresh(feeds)[0])
        assert [node.op for node in compiled.report().nodes] == ["dovetail::ByteTable"]
    assert was_taken_over(compiled)


def test_products_with_numbers_are_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by 1 and of constants are left out and folded once for all sizes."""
    g = dovetail.GraphBuilder()
    x, ones = g.input("x", "float32", ["N", 5]), [g.constant(np.full(1, n, np.float32)) for n in (1, 2, 3, 4)]
    products = [g.node(Mul(), x, one) for one in ones]
    folded = g.node(Add(), x, g.node(Mul(), ones[1], ones[2]))
    model = g.model([g.node(Add(), g.node(Add(), products[0], products[1]), folded), *products[2:]])
    asked, infer = [], Arithmetic.infer

    def counted(self: Arithmetic, a: dovetail.TensorType, b: dovetail.TensorType) -> dovetail.TensorType:
        asked.append(self.op_type)
        return infer(self, a, b)

    monkeypatch.setattr(Arithmetic, "infer", counted)
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    assert not run(compiled, model, x=numbers(2, 5))
    asked.clear()
    compiled.plan(((3, 5),))
    assert asked.count("Mul") == 1
    assert run(compiled, model, x=numbers(3, 5))


def test_quantizations_are_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value has scales and zero points of its own; those of another shape, or type, are asked apart."""
    g = dovetail.GraphBuilder()
    x, outputs = g.input("x", "float32", ["N", 5]), []
    for scale, zero in ((0.1, np.uint8(3)), (0.2, np.uint8(4)), (0.3, np.int8(5)), (np.full(5, 0.1), np.full(5, 6, np.uint8))):
        parameters = g.constant(np.float32(scale)), g.constant(np.asarray(zero))
        outputs.append(g.node(DequantizeLinear(), g.node(QuantizeLinear(), x, *parameters), *parameters))
    model = g.model(outputs)
    asked, infer, inferred = [], QuantizeLinear.infer, DequantizeLinear.infer
    monkeypatch.setattr(QuantizeLinear, "infer", lambda self, *types: asked.append("Q") or infer(self, *types))
    monkeypatch.setattr(DequantizeLinear, "infer", lambda self, *types: asked.append("D") or inferred(self, *types))
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    compiled({"x": numbers(2, 5)})
    asked.clear()
    compiled.plan(((3, 5),))
    assert sorted(asked) == ["D", "D", "D", "Q", "Q", "Q"]
    feeds = {"x": numbers(3, 5)}
    expected = dovetail.Core(config=False).compile_model(model, "NUMPY")(feeds)
    for index in range(len(outputs)):
        np.testing.assert_array_equal(compiled(feeds)[index], expected[index])
    assert was_taken_over(compiled)


@pytest.mark.parametrize("device", DEVICES)
def test_what_keeps_its_size_is_not_typed_again(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in decoders, whose caches grow by each run: types that stay are objects that stay, for devices too."""
    g = dovetail.GraphBuilder()
    row, past = g.input("row", "float32", [1, 4]), g.input("past", "float32", ["P", 4])
    product = g.node(MatMul(), row, g.constant(numbers(4, 4)))
    present = g.node(Concat(axis=0), past, g.node(Relu(), product))
    model = g.model([g.node(ReduceMax(), present), g.node(MatMul(), g.node(Relu(), product), g.constant(numbers(4, 4)))])
    asked, infer = [], MatMul.infer
    monkeypatch.setattr(MatMul, "infer", lambda self, *types: asked.append(types) or infer(self, *types))
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert not run(compiled, model, row=numbers(1, 4), past=numbers(5, 4))
    assert run(compiled, model, row=numbers(1, 4), past=numbers(6, 4))
    asked.clear()
    compiled.plan(((1, 4), (7, 4)))
    assert asked == []
    for rows in (7, 8, 7, 9, 6):
        assert run(compiled, model, row=numbers(1, 4), past=numbers(rows, 4))


@pytest.mark.parametrize("device", DEVICES)
def test_contents_that_depend_on_sizes_are_those_of_each_size(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More elements than are compared, in turn: what was found for one size must not be given for another."""
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ["N", 4]), g.input("y", "int64", ["M"])
    count = g.node(Reshape(), sizes(g, y, 0), g.constant(np.zeros(0, np.int64)))
    numbered = g.node(Range(), g.constant(np.int64(0)), count, g.constant(np.int64(1)))
    model = g.model([g.node(Relu(), x), g.node(Add(), y, numbered)])
    kept, small = [], _typed_again._Found.small
    monkeypatch.setattr(_typed_again._Found, "small", lambda self: kept.append(small(self)) or kept[-1])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    for index, (rows, length) in enumerate(((2, 90), (3, 90), (3, 91), (2, 91), (4, 90), (4, 95), (4, 20), (5, 20))):
        assert run(compiled, model, x=numbers(rows, 4), y=RNG.integers(0, 9, length)) or not index
    found = [t for one in kept for t in (*one.alive, *(t for outputs, _ in one.known.values() for t in outputs))]
    assert max(t.value.size for t in found if t.value is not None) == 20


def branching(weights: NDArray[Any]) -> dovetail.Model:
    """An If that chooses by the number of rows. Branches have constants of their own, and an If by the columns in one of them."""
    outer = {"x": dovetail.TensorType(dovetail.DType.FLOAT32, (None, 80)), "wide": dovetail.TensorType(dovetail.DType.BOOL, ())}

    def branch(factor: float, *inner: If) -> dovetail.Graph:
        g = dovetail.GraphBuilder(outer=outer)
        y = g.node(Mul(), "x", g.constant(np.full(80, factor, np.float32)))
        return g.graph([g.node(Add(), y, g.node(inner[0], "wide")) if inner else g.node(Relu(), y)])

    def added(value: float) -> dovetail.Graph:
        g = dovetail.GraphBuilder(outer=outer)
        return g.graph([g.node(Add(), "x", g.constant(np.full(80, value, np.float32)))])

    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 80])
    flat = g.constant(np.zeros(0, np.int64))
    rows, columns = (g.node(Reshape(), sizes(g, x, axis), flat) for axis in (0, 1))
    g.node(Greater(), columns, g.constant(np.int64(9)), outputs=["wide"])
    inner = If(then_branch=added(5), else_branch=added(7))
    chosen = g.node(If(then_branch=branch(2, inner), else_branch=branch(-3)), g.node(Greater(), rows, g.constant(np.int64(6))))
    return g.model([g.node(MatMul(), chosen, g.constant(weights))])


@pytest.mark.parametrize("device", DEVICES)
def test_branches_that_sizes_choose(device: str) -> None:
    """As exporters of scripted functions write them: taken over while sizes choose the same one."""
    weights, taken = numbers(80, 3), []
    compiled = dovetail.Core(config=False).compile_model(branching(weights), device)
    for rows in (3, 4, 9, 8, 5, 7, 2):
        x = numbers(rows, 80)
        (found,) = compiled({"x": x}).values()
        chosen = 2 * x + (x + 5) if rows > 6 else np.maximum(-3 * x, 0)
        np.testing.assert_allclose(found, chosen.astype(np.float64) @ weights, rtol=1e-3, atol=1e-3)
        taken.append(was_taken_over(compiled))
    assert taken == [False, True, False, True, True, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_a_number_of_heads_that_depends_on_sizes(device: str) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["B", "L", "E"])
    shape = g.node(Concat(axis=0), sizes(g, x, 0), sizes(g, x, 1), g.constant(np.array([-1])), g.constant(np.array([4])))
    q, v = (g.node(Transpose(perm=(0, 2, 1, 3)), g.node(Reshape(), x, shape)) for _ in range(2))
    k = g.node(Transpose(perm=(0, 2, 3, 1)), g.node(Reshape(), x, shape))
    summed = g.node(MatMul(), g.node(Softmax(axis=-1), g.node(MatMul(), q, k)), v)
    model = g.model([g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1, 3)), summed), g.node(Shape(), x))])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert not run(compiled, model, x=numbers(2, 5, 12))
    assert [node.op for node in compiled.report().nodes] == ["Attention"]
    assert not run(compiled, model, x=numbers(2, 5, 24))
    assert run(compiled, model, x=numbers(2, 9, 24))


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_that_fold_into_weights(device: str) -> None:
    g = dovetail.GraphBuilder()
    x, weights = g.input("x", "float32", ["N", 4, "H", "W"]), numbers(5, 4, 1, 1)
    width = g.node(Cast(to=dovetail.DType.FLOAT32), sizes(g, x, 3))
    model = g.model([g.node(Div(), g.node(Conv(), x, g.constant(weights)), width)])
    compiled, taken = dovetail.Core(config=False).compile_model(model, device), []
    for shape in ((2, 4, 9, 7), (2, 4, 9, 8), (2, 4, 12, 8)):
        image = numbers(*shape)
        (found,) = compiled(image).values()
        product = np.einsum("nchw,mc->nmhw", image.astype(np.float64), weights[:, :, 0, 0])
        assert np.allclose(found, product / shape[3], rtol=1e-5, atol=1e-5)
        taken.append(was_taken_over(compiled))
    assert "Div" not in [node.op for node in compiled.report().nodes]
    assert taken == [False, False, True]


@pytest.mark.parametrize("device", DEVICES)
def test_parts_of_different_constants_of_one_shape(device: str) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", "L", 8])
    zero, one = g.constant(np.array([0])), g.constant(np.array([1]))
    for _ in range(2):
        x = g.node(Add(), x, g.node(Slice(), g.constant(numbers(1, 40, 8)), zero, sizes(g, x, 1), one))
    model = g.model([x])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert [run(compiled, model, x=numbers(2, n, 8)) for n in (10, 14, 31)] == [False, True, True]


def test_what_a_device_refuses_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    model, refused, compile_ = convolutions(), list[int](), NumpyDevice.compile

    def refusing(self: NumpyDevice, graph: Any, options: Any) -> Any:
        if graph.types[graph.inputs[0]].dims[0] == 3 and not refused:
            refused.append(len(graph.nodes))
            raise CompileError("not in these sizes")
        return compile_(self, graph, options)

    monkeypatch.setattr(NumpyDevice, "compile", refusing)
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    taken = [run(compiled, model, x=numbers(n, 4, 9, 7)) for n in (2, 3, 5)]
    assert (taken, len(refused)) == ([False, False, True], 1)


def test_a_refused_plan_is_taken_over_for_sizes_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that needs other nodes for large batches than for small ones: there is a plan to take over for either."""
    model, made, compile_ = convolutions(), list[tuple[Any, bool]](), NumpyDevice.compile

    def refusing(self: NumpyDevice, graph: Any, options: Any) -> Any:
        is_large = graph.types[graph.inputs[0]].dims[0] > 5
        if any(nodes is graph.nodes and was_large is not is_large for nodes, was_large in made):
            raise CompileError("not in these sizes")
        made.append((graph.nodes, is_large))
        return compile_(self, graph, options)

    monkeypatch.setattr(NumpyDevice, "compile", refusing)
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    taken = [run(compiled, model, x=numbers(n, 4, 9, 7)) for n in (2, 3, 8, 9, 4, 10, 5)]
    assert taken == [False, True, False, True, True, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_places_that_are_made_of_sizes_and_numbers_of_8_bits(device: str) -> None:
    """As anchors of quantized detectors: they are constants of each size, and none that is held as it is stored."""
    g = dovetail.GraphBuilder()
    scale, zero = g.constant(np.float32(0.02)), g.constant(np.uint8(100))
    x = g.node(DequantizeLinear(), g.node(QuantizeLinear(), g.input("x", "float32", ["N", "L"]), scale, zero), scale, zero)
    length = g.node(Reshape(), sizes(g, x, 1), g.constant(np.zeros(0, np.int64)))
    numbered = g.node(Range(), g.constant(np.int64(0)), length, g.constant(np.int64(1)))
    half = g.node(DequantizeLinear(), g.constant(np.uint8(125)), scale, zero)
    places = g.node(Add(), g.node(Cast(to=dovetail.DType.FLOAT32), numbered), half)
    model, core = g.model([g.node(Add(), x, places)]), dovetail.Core(config=False)
    compiled = core.compile_model(model, device)
    taken = []
    for shape in ((2, 70), (3, 80), (5, 91)):
        x_ = numbers(*shape)
        fresh = core.compile_model(model, device)
        assert np.array_equal(compiled({"x": x_})[0], fresh({"x": x_})[0])
        assert [(n.name, n.op) for n in compiled.report().nodes] == [(n.name, n.op) for n in fresh.report().nodes]
        taken.append(was_taken_over(compiled))
    assert taken == [False, True, True]


def test_a_new_node_that_refuses_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator that a pass made raises for a size; the plan is made without what was decided."""
    g = dovetail.GraphBuilder()
    q, k, v = (g.input(name, "float32", ["B", 3, "L", 8]) for name in ("q", "k", "v"))
    scores = g.node(MatMul(), q, g.node(Transpose(perm=(0, 1, 3, 2)), k))
    model = g.model([g.node(MatMul(), g.node(Softmax(axis=-1), scores), v)])
    infer = Attention.infer

    def refusing(self: Attention, *inputs: Any, **others: Any) -> Any:
        if inputs[0].dims[2] == 7:
            raise OperatorError("not in this size")
        return infer(self, *inputs, **others)

    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY", {"PASSES": "-fuse_post_ops"})
    assert not run(compiled, model, **{name: numbers(2, 3, 10, 8) for name in "qkv"})
    assert [node.op for node in compiled.report().nodes] == ["Attention"]
    monkeypatch.setattr(Attention, "infer", refusing)
    assert not run(compiled, model, **{name: numbers(2, 3, 7, 8) for name in "qkv"})


@pytest.mark.parametrize("properties", [{"PASSES": "-take_over"}, {"PASSES": "-keep_plans"}])
def test_it_can_be_left_out(properties: Mapping[str, str]) -> None:
    model = convolutions()
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY", properties)
    assert not any(run(compiled, model, x=numbers(n, 4, 9, 7)) for n in (2, 3, 5))


@pytest.mark.parametrize("device", DEVICES)
def test_dropped_plans(device: str) -> None:
    """Weights of plans that were dropped are computed again."""
    model = convolutions()
    compiled = dovetail.Core(config=False).compile_model(model, device, {"PLAN_CACHE": 1})
    for n in (2, 3, 5, 2, 3):
        run(compiled, model, x=numbers(n, 4, 9, 7))


@pytest.mark.parametrize("properties", [{}, {"MEMORY_LIMIT": 50_000}])
def test_errors_are_those_of_a_first_plan(properties: Mapping[str, int]) -> None:
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ["N", "K"]), g.input("y", "float32", ["L", "M"])
    model = g.model([g.node(Relu(), g.node(MatMul(), x, y))])
    core = dovetail.Core(config=False)
    compiled = core.compile_model(model, "NUMPY", properties)
    assert [run(compiled, model, x=numbers(2, n), y=numbers(n, 5)) for n in (6, 7)] == [False, True]
    for a, b in ((numbers(2, 8), numbers(7, 5)), (numbers(200, 3), numbers(3, 300)))[: 1 + len(properties)]:
        messages = []
        for one in (compiled, core.compile_model(model, "NUMPY", properties)):
            with pytest.raises(DovetailError) as raised:
                one({"x": a, "y": b})
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


def test_a_plan_is_looked_at_when_other_sizes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, however many sizes come."""
    looked, model = [], convolutions()
    look = take_over._decisions_of
    monkeypatch.setattr(take_over, "_decisions_of", lambda *given: looked.append(found := look(*given)) or found)
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    counts = []
    for n in (2, 2, 3, 5):
        run(compiled, model, x=numbers(n, 4, 9, 7))
        counts.append(len(looked))
    assert counts == [0, 0, 1, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_an_output_that_a_pass_made_constant(device: str) -> None:
    """Numbers that are stored as int8 are read as they are by products, so that they become constants late."""
    g = dovetail.GraphBuilder()
    x, weights = g.input("x", "float32", ("n", 7)), g.constant(numbers(7, 5))
    stored = [np.array([3, -2], np.int8), np.array(0.5, np.float32), np.array(0, np.int8)]
    g.node(DequantizeLinear(), *(g.constant(one) for one in stored), outputs=["real"])
    compiled = dovetail.Core(config=False).compile_model(g.model([g.node(MatMul(), x, weights), "real"]), device)
    for size in (3, 4, 6, 3):
        np.testing.assert_array_equal(compiled(numbers(size, 7))[1], [1.5, -1])
