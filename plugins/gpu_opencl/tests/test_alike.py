"""Alike layers share their launches in further sizes, each with its own weights, and only where they would be the same."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Choice, DeviceInfo, Graph, TypedNode
from dovetail_gpu_opencl import device as device_module
from dovetail_gpu_opencl.alike import AlikeNodes, pattern_of
from dovetail_gpu_opencl.kernels import _quantized
from dovetail_gpu_opencl.kernels._gemm import GemmRows
from dovetail_gpu_opencl.kernels.mat_mul import product_of
from dovetail_gpu_opencl.launch import Constant, Fault, Image, Launch, Read, Scalar, Scratch, Write, ints
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose

LAYERS = 5


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often kernels made launches of the nodes of each operator."""
    found: Counter[str] = Counter()
    inner = device_module.OpenCLDevice._launches

    def launches(self: Any, kernel: Any, node: TypedNode) -> Any:
        found[node.op.op_type] += 1
        return inner(self, kernel, node)

    monkeypatch.setattr(device_module.OpenCLDevice, "_launches", launches)
    return found


def layered(weights: Sequence[Any], slopes: Sequence[float]) -> dovetail.Model:
    """Sums of products, each with a slope and a residual; the first axis has any size."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ("N", 24))
    for (w, b), slope in zip(weights, slopes, strict=True):
        y = g.node(LeakyRelu(alpha=slope), g.node(Add(), g.node(MatMul(), x, g.constant(w)), g.constant(b)))
        x = g.node(Add(), y, x)
    return g.model([x])


def expected(x: Any, weights: Sequence[Any], slopes: Sequence[float]) -> Any:
    x = x.astype(np.float64)
    for (w, b), slope in zip(weights, slopes, strict=True):
        y = x @ w + b
        x = np.where(y > 0, y, slope * y) + x
    return x


def ran(model: dovetail.Model, info: DeviceInfo, asked: Counter[str], check: Callable[[Any, Any], None]) -> list[int]:
    """The products that kernels were asked for in each of several sizes."""
    request = dovetail.Core().compile_model(model, info.name).create_infer_request()
    found = []
    for rows in (3, 5, 7, 40, 11):
        asked.clear()
        x = np.cos(np.arange(rows * 24, dtype=np.float32) * 7).reshape(rows, 24)
        check(x, request.infer({"x": x})[0])
        found.append(asked["MatMul"] + asked["Gemm"])
    return found


def test_layers_share_launches_and_no_weights(info: DeviceInfo, asked: Counter[str], rng: Any) -> None:
    weights = [(rng.standard_normal((24, 24)) / 8, rng.standard_normal(24)) for _ in range(LAYERS)]
    weights = [(w.astype(np.float32), b.astype(np.float32)) for w, b in weights]
    slopes = [0.25] * LAYERS

    def check(x: Any, got: Any) -> None:
        np.testing.assert_allclose(got, expected(x, weights, slopes), rtol=2e-5, atol=2e-5)

    found = ran(layered(weights, slopes), info, asked, check)
    if info.kind == "CPU":  # the second plan looks which are alike
        assert found[:2] == [LAYERS, LAYERS], found
        assert max(found[2:]) == 1, found


def test_other_slopes_are_not_alike(info: DeviceInfo, asked: Counter[str], rng: Any) -> None:
    weights = [(rng.standard_normal((24, 24)).astype(np.float32) / 8, np.zeros(24, np.float32)) for _ in range(4)]
    slopes = [0.25, 0.5, 0.25, -0.0]

    def check(x: Any, got: Any) -> None:
        np.testing.assert_allclose(got, expected(x, weights, slopes), rtol=2e-5, atol=2e-5)

    found = ran(layered(weights, slopes), info, asked, check)
    if info.kind == "CPU":
        assert max(found[2:]) == 3, found


def test_quantized_layers_share_launches_and_no_scales(info: DeviceInfo, asked: Counter[str], rng: Any) -> None:
    """Their operators have the scales as attributes."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "uint8", ("N", 24))
    layers = [
        (rng.integers(-99, 99, (24, 24)).astype(np.int8), *rng.uniform([0.01, 0.01, 0.3], [0.1, 0.1, 3])) for _ in range(LAYERS)
    ]
    for w, *scales in layers:
        left, own, result = (g.constant(np.array(scale, np.float32)) for scale in scales)
        zero, none = g.constant(np.array(100, np.uint8)), g.constant(np.array(0, np.int8))
        factors = g.node(DequantizeLinear(), x, left, zero), g.node(DequantizeLinear(), g.constant(w), own, none)
        x = g.node(QuantizeLinear(), g.node(MatMul(), *factors), result, zero)
    request = dovetail.Core().compile_model(g.model([x]), info.name).create_infer_request()
    found = []
    for rows in (3, 5, 7, 40, 11):
        asked.clear()
        wanted = np.arange(rows * 24, dtype=np.uint8).reshape(rows, 24)
        got = request.infer({"x": wanted})[0]
        for w, *scales in layers:
            left, own, result = np.float32(scales).astype(np.float64)
            real = (wanted.astype(np.int64) - 100) @ w.astype(np.int64) * (left * own) / result
            wanted = np.clip(np.rint(real) + 100, 0, 255).astype(np.uint8)
        np.testing.assert_array_equal(got, wanted)
        found.append(asked["QuantizedMatMul"])
    if info.kind == "CPU":
        assert found[:2] == [LAYERS, LAYERS], found
        assert max(found[2:]) == 1, found


def test_quantized_layers_with_a_bias_are_not_made_again_for_each_length(
    info: DeviceInfo, asked: Counter[str], rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that read a row of numbers do not depend on how many rows there are."""
    if info.kind != "CPU":
        pytest.skip("kernels for bytes on GPUs decide by scales")
    made: list[Any] = []
    inner = _quantized.result_of
    monkeypatch.setattr(_quantized, "result_of", lambda *given: (made.append(given), inner(*given))[1])
    g = dovetail.GraphBuilder()
    x = g.input("x", "uint8", (1, "N", 24))
    scale, zero = g.constant(np.array(0.1, np.float32)), g.constant(np.array(100, np.uint8))
    for _ in range(LAYERS):
        weights = g.constant(rng.integers(-99, 99, (24, 24)).astype(np.int8))
        own = g.node(DequantizeLinear(), weights, g.constant(np.array(0.0131, np.float32)), g.constant(np.array(0, np.int8)))
        product = g.node(QuantizeLinear(), g.node(MatMul(), g.node(DequantizeLinear(), x, scale, zero), own), scale, zero)
        bias = g.constant(rng.standard_normal(24).astype(np.float32))
        shifted = g.node(Add(), g.node(DequantizeLinear(), product, scale, zero), bias)
        x = g.node(QuantizeLinear(), shifted, scale, zero)
    model = g.model([x])
    request = dovetail.Core().compile_model(model, info.name).create_infer_request()
    reference = dovetail.Core().compile_model(model, "NUMPY")
    found = []
    for rows in (3, 5, 7, 40, 11):
        asked.clear()
        made.clear()
        given = {"x": np.arange(rows * 24, dtype=np.uint8).reshape(1, rows, 24)}
        np.testing.assert_array_equal(request.infer(given)[0], reference(given)[0])
        found.append((asked["QuantizedMatMul"], len(made)))
    assert found[0][0] == LAYERS, found
    assert set(found[2:]) == {(1, 0)}, found


def test_sums_of_bytes_are_not_made_again_for_each_length(info: DeviceInfo, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes by which a row for each position is read are arguments; its constant is another one for each length."""
    if info.kind != "CPU":
        pytest.skip("on GPUs the content of single constants counts")
    made: list[Any] = []
    inner = _quantized.QuantizedElementwise._parts
    monkeypatch.setattr(
        _quantized.QuantizedElementwise, "_parts", lambda self, *given: (made.append(given), inner(self, *given))[1]
    )
    g = dovetail.GraphBuilder()
    x, y = (g.input(name, "uint8", ("N", "L", 24)) for name in ("x", "y"))
    scale, zero = g.constant(np.array(0.1, np.float32)), g.constant(np.array(100, np.uint8))
    stored = g.node(Add(), *[g.node(DequantizeLinear(), name, scale, zero) for name in (x, y)])
    length = g.node(Slice(), g.node(Shape(), x), *[g.constant(np.array([n])) for n in (1, 2)])
    rows = g.constant(rng.standard_normal((50, 24)).astype(np.float32))
    added = g.node(Slice(), rows, g.constant(np.array([0])), length, g.constant(np.array([0])))
    model = g.model([g.node(QuantizeLinear(), g.node(Add(), stored, added), scale, zero)])
    request = dovetail.Core().compile_model(model, info.name).create_infer_request()
    reference, found = dovetail.Core().compile_model(model, "NUMPY"), []
    for batch, rows_of_x in ((2, 5), (2, 7), (3, 40), (2, 11), (5, 7)):
        made.clear()
        feeds = {name: rng.integers(0, 256, (batch, rows_of_x, 24)).astype(np.uint8) for name in ("x", "y")}
        np.testing.assert_array_equal(request.infer(feeds)[0], reference(feeds)[0])
        found.append(len(made))
    assert found[0] == 1, found
    assert set(found[2:]) == {0}, found


# --- one pair of nodes ------------------------------------------------------------------------------------------------


class Pair:
    """Two products by the constants `w0` and `w1`, and launches that kernels might give them."""

    def __init__(self) -> None:
        g = dovetail.GraphBuilder()
        a, b = g.input("a", "float32", (2, 3)), g.input("b", "float32", (2, 3))
        self.arrays = [np.full((3, 3), i, np.float32) for i in range(2)]
        names = [g.node(MatMul(), x, g.constant(w)) for x, w in zip((a, b), self.arrays, strict=True)]
        self.graph: Graph = g.graph(names)
        self.kernel = GemmRows(product_of)

    def typed(self) -> dict[str, TypedNode]:
        """The nodes, whose equal types are one object."""
        one: dict[Any, Any] = {}
        types = {n: t if t.value is not None else one.setdefault(t, t) for n, t in self.graph.types.items()}
        graph = self.graph.replace(types=types)
        return {node.name: TypedNode.of(node, graph) for node in graph.nodes}

    def learned(self, make: Callable[[TypedNode, int], Launch], kernel: Any = None) -> tuple[AlikeNodes, dict[str, TypedNode]]:
        typed, alike = self.typed(), AlikeNodes()
        choice: Choice[Any] = Choice(kernel or self.kernel)
        alike.learn(typed, dict.fromkeys(typed, choice), {n: [make(t, i)] for i, (n, t) in enumerate(typed.items())})
        return alike, typed


def launch(node: TypedNode, *more: Any, source: str = "text") -> Launch:
    arguments = (Read(node.node.inputs[0]), Scratch(f"scratch:{node.name}:0", 8), Write(node.node.outputs[0]), *more)
    return Launch("file.cl", source, "entry", arguments, (1,))


@pytest.fixture
def pair(bench: Any) -> Pair:
    found = Pair()
    found.graph = bench.typed(found.graph)
    return found


def test_names_work_buffers_and_arrays_are_exchanged(pair: Pair) -> None:
    alike, typed = pair.learned(lambda node, i: launch(node, Constant(pair.arrays[i]), *ints(7), Fault("no index")))
    (one, leader), (two, node) = typed.items()
    assert alike.leaders(typed) == {two: one}
    given = [launch(leader, Constant(pair.arrays[0]), *ints(9), Fault("no index"))]  # other numbers: another size
    found = alike.launches(node, pattern_of(leader, given))
    assert found is not None
    (read, scratch, write, constant, number, fault) = found[0].arguments
    assert (read, write) == (Read(node.node.inputs[0]), Write(node.node.outputs[0]))
    assert scratch == Scratch(f"scratch:{two}:0", 8)
    assert isinstance(constant, Constant)
    assert constant.array is pair.arrays[1]
    assert (number, fault) == (ints(9)[0], Fault("no index"))


def test_weights_that_sizes_pack_otherwise_are_not_exchanged(pair: Pair) -> None:
    alike, typed = pair.learned(lambda node, i: launch(node, Constant(pair.arrays[i])))
    leader = next(iter(typed.values()))
    assert alike.have_same_arrays(leader.name, [launch(leader, Constant(pair.arrays[0]))])
    for given in ([launch(leader, Constant(pair.arrays[0].copy()))], [launch(leader)], []):
        assert not alike.have_same_arrays(leader.name, given)
    assert not alike.have_same_arrays("another", [])


def test_arrays_are_not_kept(pair: Pair) -> None:
    packed = [array.copy() for array in pair.arrays]
    alike, typed = pair.learned(lambda node, i: launch(node, Constant(packed[i])))
    leader, node = typed.values()
    pattern = pattern_of(leader, [launch(leader, Constant(packed[0]))])
    assert alike.launches(node, pattern) is not None
    packed.pop()
    assert alike.launches(node, pattern) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda node, i: launch(node, *ints(i)),
        lambda node, i: launch(node, Scalar((np.int32, np.float32)[i](1))),
        lambda node, i: launch(node, Scalar(np.float32((0.0, -0.0)[i]))),
        lambda node, i: launch(node, source=f"text {i}"),
        lambda node, i: launch(node, Constant(np.zeros(3, (np.int32, np.float32)[i]))),
        lambda node, i: launch(node, Fault(f"an index of {i}")),
        lambda node, i: launch(node, Read("of another node")),
        lambda node, i: launch(node, Image("image:x", node.outputs[0].dtype, 1, 1, None, written=False)),
    ],
)
def test_other_launches_are_not_alike(pair: Pair, make: Any) -> None:
    alike, typed = pair.learned(make)
    assert alike.leaders(typed) == {}


def test_kernels_that_decide_by_content_are_left_out(pair: Pair) -> None:
    kernel = GemmRows(product_of)
    kernel.by_content = True  # type: ignore[misc]  # of this one
    alike, typed = pair.learned(lambda node, i: launch(node), kernel)
    assert alike.leaders(typed) == {}


def test_other_weights_are_not_those_of_before(pair: Pair) -> None:
    alike, typed = pair.learned(lambda node, i: launch(node))
    names = [name for name in pair.graph.types if pair.graph.types[name].value is not None]
    copies = {name: copied(pair.graph.types[name]) for name in names[:1]}
    pair.graph = pair.graph.replace(types={**pair.graph.types, **copies})
    assert len(alike.leaders(typed)) == 1
    assert alike.leaders(pair.typed()) == {}


def copied(tensor: Any) -> Any:
    """The type of a copy of a constant."""
    return type(tensor).of(tensor.value.copy(), known=True)


def test_operators_with_other_attributes_are_not_alike(bench: Any) -> None:
    """Two transposes of one element have the same launches."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", (1, 1))
    graph = bench.typed(g.graph([g.node(Transpose(perm=perm), g.node(Tanh(), x)) for perm in ((0, 1), (1, 0))]))
    typed = {n.name: TypedNode.of(n, graph) for n in graph.nodes if isinstance(n.op, Transpose)}
    alike = AlikeNodes()
    alike.learn(typed, dict.fromkeys(typed, Choice(GemmRows(product_of))), {name: [launch(node)] for name, node in typed.items()})
    assert alike.leaders(typed) == {}
