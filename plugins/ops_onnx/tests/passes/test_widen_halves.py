"""Nodes of halves compute in float32 where the device has kernels for that only: which, what is converted, and the results."""

from math import erf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

import dovetail
from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail.graph import Graph
from dovetail.passes import PassContext
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.is_inf import IsInf
from dovetail_ops_onnx.is_nan import IsNaN
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes.widen_halves import widen_halves
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.transpose import Transpose

RNG = np.random.default_rng(3)


def some(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float16)


def network(g: dovetail.GraphBuilder, dtype: str = "float16") -> list[str]:
    """A convolution, two products, one of which moves first, a value that two nodes read, and two outputs, one read further."""
    x = g.input("x", dtype, ["N", 3, "H", "W"])

    def constant(*shape: int) -> str:
        return g.constant(some(*shape).astype(bfloat16 if dtype == "bfloat16" else np.float16))

    y = g.node(Relu(), g.node(Conv(), x, constant(4, 3, 1, 1), constant(4)))
    moved = g.node(Transpose(perm=(0, 2, 3, 1)), y)
    first = g.node(MatMul(), moved, constant(4, 5))
    return [g.node(Add(), first, constant(5)), g.node(Sigmoid(), first), g.node(Shape(), first)]


class Picky:
    """A device with kernels for float32, and for these operators for halves; it has references for all else."""

    def __init__(self, *halves: str, kind: str = "GPU") -> None:
        self.halves, self.info = halves, SimpleNamespace(kind=kind)

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        types = [t for t in (*node.inputs, *node.outputs) if t is not None]
        if any(t.dtype in (DType.FLOAT16, DType.BFLOAT16) for t in types) and node.op.op_type not in self.halves:
            return Accepted("ref")
        return Refusal(Reason.OPERATOR, "none") if node.op.op_type == "Sigmoid" else Accepted("fast")


def widened(g: dovetail.GraphBuilder, outputs: list[str], *halves: str, kind: str = "GPU", **shapes: tuple[int, ...]) -> Graph:
    graph = fold_constants(g.model(outputs).reshape(shapes).graph if shapes else g.graph(outputs))
    device: Any = Picky(*halves, kind=kind)
    return widen_halves(graph, PassContext({}, [device]))  # type: ignore[arg-type]


def types(graph: Graph) -> list[tuple[str, str, str]]:
    return [(n.op.op_type, str(graph.types[n.inputs[0]].dtype), str(graph.types[n.writes[0]].dtype)) for n in graph.nodes]


def test_what_is_read_and_given_is_converted_once() -> None:
    g = dovetail.GraphBuilder()
    graph = widened(g, network(g), x=(2, 3, 5, 6))
    assert types(graph) == [
        ("Cast", "float16", "float32"),
        ("Conv", "float32", "float32"),
        ("Relu", "float32", "float32"),
        ("Transpose", "float32", "float32"),
        ("MatMul", "float32", "float32"),
        ("Add", "float32", "float32"),
        ("Cast", "float32", "float16"),
        ("Sigmoid", "float32", "float32"),  # for which the device has no kernel: it reads float32 anyway
        ("Cast", "float32", "float16"),
    ]
    assert [str(graph.types[name].dtype) for name in graph.outputs[:2]] == ["float16", "float16"]
    assert {array.dtype.name for name, array in graph.constants.items() if name not in graph.outputs} == {"float32"}


def test_bits_of_halves_are_looked_at_unless_float32_is_there() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float16", (2, 4))
    graph = widened(g, [g.node(IsNaN(), x), g.node(IsNaN(), g.node(Relu(), x))])
    assert [kinds for kinds in types(graph) if kinds[0] == "IsNaN"] == [
        ("IsNaN", "float16", "bool"),
        ("IsNaN", "float32", "bool"),
    ]


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_a_number_beyond_float16_is_infinite(device: str) -> None:
    """As in onnxruntime, which computes the sum in float32 and rounds it before IsInf."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float16", (3,))
    doubled = g.node(Add(), x, x)
    compiled = dovetail.Core().compile_model(
        g.model([g.node(IsInf(), doubled), g.node(IsInf(), g.node(Relu(), doubled))]), device
    )
    first, second = compiled(np.array([60000, -60000, 5], np.float16)).values()
    np.testing.assert_array_equal(first, [True, True, False])
    np.testing.assert_array_equal(second, [True, False, False])


def test_what_the_device_computes_in_halves_stays() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float16", (2, 4, 3))
    y = g.node(MatMul(), g.node(Transpose(perm=(0, 2, 1)), x), g.constant(some(4, 5)))
    z = g.node(Reshape(), y, g.constant(np.array([2, 15])))
    other = g.node(Relu(), x)
    graph = widened(g, [g.node(Cast(to=DType.INT32), z), other], "Transpose", "Relu", "Cast")
    assert sorted(types(graph)) == [
        ("Cast", "float16", "float32"),  # for the product
        ("Cast", "float16", "int32"),  # of what is rounded before it becomes a whole number
        ("Cast", "float32", "float16"),
        ("MatMul", "float32", "float32"),
        ("Relu", "float16", "float16"),
        ("Reshape", "float32", "float32"),
        ("Transpose", "float16", "float16"),
    ]


def test_a_cast_to_float32_reads_what_is_not_rounded_and_one_to_float16_rounds() -> None:
    """As an exported softmax in float32 between products of float16; an input is converted by its own Cast."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float16", (3, 4))
    scores = g.node(Cast(to=DType.FLOAT32), g.node(MatMul(), x, g.constant(some(4, 5))))
    weights = g.node(Cast(to=DType.FLOAT16), g.node(Relu(), scores))
    other = g.node(Relu(), g.node(Cast(to=DType.FLOAT32), x))
    graph = widened(g, [g.node(MatMul(), weights, g.constant(some(5, 2))), other])
    assert types(graph) == [
        ("Cast", "float16", "float32"),
        ("MatMul", "float32", "float32"),
        ("Cast", "float32", "float32"),  # which is dropped later
        ("Relu", "float32", "float32"),
        ("Cast", "float32", "float16"),
        ("Cast", "float16", "float32"),
        ("Relu", "float32", "float32"),
        ("Cast", "float16", "float32"),
        ("MatMul", "float32", "float32"),
        ("Cast", "float32", "float16"),
    ]


@pytest.mark.parametrize(
    ("kind", "dtype", "computed"),
    [("CPU", "float16", "float32"), ("CPU", "bfloat16", "bfloat16"), ("GPU", "float16", "float16")],
)
def test_products_of_float16_on_cpus(kind: str, dtype: str, computed: str) -> None:
    g = dovetail.GraphBuilder()
    x, y = g.input("x", dtype, (2, 4)), g.input("y", dtype, (4, 3))
    graph = widened(g, [g.node(MatMul(), g.node(Relu(), x), y)], "MatMul", "Relu", kind=kind)
    assert ("MatMul", computed, computed) in types(graph)
    assert ("Relu", dtype, dtype) in types(graph)


@pytest.mark.parametrize(
    ("kind", "dtype", "last"),
    [("GPU", "float16", "float16"), ("CPU", "bfloat16", "bfloat16"), ("CPU", "float16", "float32")],
)
def test_products_behind_a_node_in_float32(kind: str, dtype: str, last: str) -> None:
    """Those that the device computes in halves, and fast, do so again."""
    g = dovetail.GraphBuilder()
    x, y = g.input("x", dtype, (4, 4)), g.input("y", dtype, (4, 4))
    graph = widened(g, [g.node(MatMul(), g.node(Relu(), g.node(MatMul(), x, y)), y)], "MatMul", kind=kind)
    found = [one for one in types(graph) if one[0] != "Cast"]
    assert found[1:] == [("Relu", "float32", "float32"), ("MatMul", last, last)]


def test_graphs_without_kernels_in_float32_stay() -> None:
    g = dovetail.GraphBuilder()
    y = g.node(Sigmoid(), g.input("x", "float16", (3,)))
    graph = g.graph([y])
    device: Any = Picky()
    assert widen_halves(fold_constants(graph), PassContext({}, [device])).nodes == graph.nodes  # type: ignore[arg-type]


@pytest.mark.parametrize(("device", "dtype"), [("NUMPY", "float16"), ("NUMPY", "bfloat16"), ("ONEDNN", "float16")])
def test_results(device: str, dtype: str) -> None:
    """They are those of float64 but for one rounding, in sizes that take over a plan too."""
    g = dovetail.GraphBuilder()
    outputs = network(g, dtype)
    model, wide = g.model(outputs), {n: a.astype(np.float64) for n, a in g.model(outputs).graph.constants.items()}
    compiled = dovetail.Core(config=False).compile_model(model, device)
    kernel, bias, matrix, row = (wide[name] for name in list(wide)[:4])
    for n, h, w in ((0, 5, 6), (2, 5, 6), (3, 8, 7)):
        x = RNG.standard_normal((n, 3, h, w)).astype(bfloat16 if dtype == "bfloat16" else np.float16)
        product = np.einsum("nchw,mc->nhwm", x.astype(np.float64), kernel[:, :, 0, 0]) + bias
        first = np.maximum(product, 0) @ matrix
        found = list(compiled(x).values())
        unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
        assert [str(array.dtype) for array in found] == [dtype, dtype, "int64"]
        for got, want in ((found[0], first + row), (found[1], 1 / (1 + np.exp(-first)))):
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=1.01 * unit, atol=1e-5)
    assert not [node for node in compiled.report().nodes if node.kernel == "ref" and node.op not in ("Cast", "Shape")]


def test_it_can_be_left_out() -> None:
    g = dovetail.GraphBuilder()
    model = g.model(network(g)[:1])
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY", {"PASSES": "-widen_halves"})
    compiled(some(2, 3, 5, 6))
    assert {node.kernel for node in compiled.report().nodes if node.op in ("Conv", "MatMul")} == {"ref"}


def test_numbers_that_were_rounded_to_halves_are_recognised() -> None:
    """The square root of 2 of an exported GELU; behind a product, since an elementwise node alone stays as it is."""
    g = dovetail.GraphBuilder()

    def number(value: float) -> str:
        return g.constant(np.float16(value))

    x = g.node(MatMul(), g.input("x", "float16", (3, 4)), g.constant(some(4, 5)))
    factor = g.node(Add(), g.node(Erf(), g.node(Div(), x, number(2**0.5))), number(1))
    model = g.model([g.node(Mul(), g.node(Mul(), x, factor), number(0.5))])
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    data = some(3, 4)
    (found,) = compiled(data).values()
    product = data.astype(np.float64) @ next(a for a in model.graph.constants.values() if a.ndim == 2).astype(np.float64)
    want = product * (1 + np.vectorize(erf)(product / 2**0.5)) / 2
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=1e-3, atol=1e-3)
    assert "Gelu" in {node.op for node in compiled.report().nodes} or "gelu_erf" in str(compiled.report().nodes[-2].post_ops)


def test_nodes_that_write_states_stay() -> None:
    """A converted state would be a copy in each run."""
    g = dovetail.GraphBuilder()
    product = g.node(MatMul(), g.input("x", "float16", (4, 3)), g.constant(some(3, 4)))
    state = g.node(Add(), g.input("past", "float16", (4, 4)), g.node(Relu(), product))
    graph = fold_constants(g.graph([g.node(MatMul(), state, g.constant(some(4, 2))), state]).replace(states={"past": 1}))
    found = widen_halves(graph, PassContext({}, [Picky()]))  # type: ignore[arg-type, list-item]
    assert types(found) == [
        ("Cast", "float16", "float32"),
        ("MatMul", "float32", "float32"),
        ("Relu", "float32", "float32"),
        ("Cast", "float32", "float16"),
        ("Add", "float16", "float16"),
        ("Cast", "float16", "float32"),
        ("MatMul", "float32", "float32"),
        ("Cast", "float32", "float16"),
    ]


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_scale_of_halves_asks_for_a_quotient_of_halves(device: str, dtype: str) -> None:
    half = DType.of(dtype).numpy
    g = dovetail.GraphBuilder()
    x = g.node(Relu(), g.input("x", "float32", [4096]))
    model = g.model([g.node(QuantizeLinear(), x, g.constant(0.0371, dtype), g.constant(3, "uint8"))])
    x = np.random.default_rng(8).uniform(0, 9, 4096).astype(np.float32)
    quotient = (x.astype(half).astype(np.float32) / np.float32(half.type(0.0371))).astype(half)
    expected = np.clip(np.rint(quotient.astype(np.float32)) + 3, 0, 255)
    assert (expected != np.clip(np.rint(x / np.float32(half.type(0.0371))) + 3, 0, 255)).any()
    np.testing.assert_array_equal(dovetail.Core().compile_model(model, device)({"x": x})[0], expected)


def test_names_that_conversions_would_have_and_sub_graphs_leave_a_graph_as_it_is() -> None:
    g = dovetail.GraphBuilder()
    y = g.node(Relu(), g.node(MatMul(), g.input("x", "float16", (2, 3)), g.constant(some(3, 4))), outputs=["x@float32"])
    assert types(widened(g, [y])) == [("MatMul", "float16", "float16"), ("Relu", "float16", "float16")]


def test_plans_share_widened_weights() -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(MatMul(), g.input("x", "float16", ["N", 3]), g.constant(some(3, 4)))])
    graphs, memory, device = [], dict[str, Any](), Picky()
    for size in (2, 5):
        graph = fold_constants(model.reshape({"x": (size, 3)}).graph)
        graphs.append(widen_halves(graph, PassContext({}, [device], memory=memory)))  # type: ignore[arg-type, list-item]
    first, second = ([a for n, a in graph.constants.items() if n.endswith("@float32")] for graph in graphs)
    assert len(first) == 1
    assert first[0] is second[0]
