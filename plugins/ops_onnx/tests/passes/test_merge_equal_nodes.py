"""Equal nodes become one: results, reports, and everything that must stay apart."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

import dovetail
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.passes.merge_equal_nodes import merge_equal_nodes
from dovetail_ops_onnx.random_normal_like import RandomNormalLike
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.sigmoid import Sigmoid

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


def sizes(g: dovetail.GraphBuilder, x: str, constants: Sequence[str]) -> list[str]:
    return [g.node(Reshape(), x, g.node(Concat(axis=0), name, g.node(Shape(), x))) for name in constants]


def test_equal_nodes_become_one_that_represents_all() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    first, second = g.constant(np.array([1])), g.constant(np.array([1]))
    graph = g.graph(sizes(g, x, [first, second]))
    merged = merge_equal_nodes(graph)
    assert [node.op.op_type for node in merged.nodes] == ["Shape", "Concat", "Reshape"]
    assert [node.origins for node in merged.nodes] == [
        (a.name, b.name) for a, b in zip(graph.nodes[:3], graph.nodes[3:], strict=True)
    ]
    assert merged.outputs == (graph.outputs[0],) * 2
    assert merge_equal_nodes(merged) is merged


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_results_of_merged_outputs_are_separate_arrays(device: str) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    model = g.model([g.node(Sigmoid(), g.node(Relu(), x)) for _ in range(2)])
    one, two = dovetail.Core(config=False).compile_model(model, device)(X).values()
    expected = 1 / (1 + np.exp(-np.maximum(X.astype(np.float64), 0)))
    assert np.allclose(one, expected, rtol=1e-6)
    assert np.array_equal(one, two)
    assert not np.shares_memory(one, two)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda g, x: [g.node(LeakyRelu(alpha=a), x) for a in (0.0, -0.0)], id="attributes, by their sign"),
        pytest.param(lambda g, x: [g.node(LeakyRelu(alpha=a), x) for a in (0.1, 0.2)], id="attributes"),
        pytest.param(lambda g, x: [g.node(RandomNormalLike(), x) for _ in range(2)], id="random"),
        pytest.param(lambda g, x: [g.node(op, x) for op in (Relu(), Sigmoid())], id="operators"),
        pytest.param(lambda g, x: [g.node(Relu(), name) for name in (x, g.node(Sigmoid(), x))], id="inputs"),
    ],
)
def test_what_differs_stays(build: Any) -> None:
    g = dovetail.GraphBuilder()
    graph = g.graph(build(g, g.input("x", "float32", ["N", 5])))
    assert merge_equal_nodes(graph) is graph


@pytest.mark.parametrize("value", [np.array([2]), np.array([1], np.int32), np.array([[1]])])
def test_constants_are_equal_by_value_type_and_shape(value: NDArray[Any]) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    graph = g.graph([g.node(Reshape(), x, g.constant(one)) for one in (np.array([1]), value)])
    assert merge_equal_nodes(graph) is graph


def test_large_constants_are_not_compared() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 65])
    graph = g.graph([g.node(Concat(axis=0), x, g.constant(np.ones((1, 65), np.float32))) for _ in range(2)])
    assert merge_equal_nodes(graph) is graph


def test_a_node_for_which_the_user_gave_a_kernel_stays() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    graph = g.graph([*(g.node(Relu(), x) for _ in range(2)), *(g.node(Sigmoid(), x) for _ in range(2))])
    merged = merge_equal_nodes(graph, lambda domain, op_type: op_type == "Relu")
    assert [node.op.op_type for node in merged.nodes] == ["Relu", "Relu", "Sigmoid"]


def test_nodes_in_any_order() -> None:
    """The reader of the second one comes before the first."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    one, two = g.node(Relu(), x), g.node(Relu(), x)
    graph = g.graph([g.node(Sigmoid(), one), g.node(LeakyRelu(alpha=0.5), two)])
    merged = merge_equal_nodes(graph.replace(nodes=graph.nodes[::-1]))
    assert len(merged.nodes) == 3
    model = dovetail.Core(config=False).compile_model(g.model(list(graph.outputs)), "NUMPY")
    positive = np.maximum(X.astype(np.float64), 0)
    assert all(
        np.allclose(a, b, rtol=1e-6) for a, b in zip(model(X).values(), (1 / (1 + np.exp(-positive)), positive), strict=True)
    )


def _with_branches(nodes: list[NodeProto]) -> bytes:
    """`nodes`, and an If whose branches read `b`."""
    info = helper.make_tensor_value_info

    def branch(name: str) -> Any:
        return helper.make_graph([helper.make_node("Neg", ["b"], [name])], name, [], [info(name, TensorProto.FLOAT, None)])

    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
    graph = helper.make_graph(
        [*nodes, choice],
        "g",
        [info("x", TensorProto.FLOAT, ["N", 5]), info("c", TensorProto.BOOL, [])],
        [info("y", TensorProto.FLOAT, None), info("a", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(0, np.float32), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("condition", [True, False])
def test_what_a_sub_graph_reads_stays(condition: bool) -> None:
    content = _with_branches([helper.make_node("Relu", ["x"], [name]) for name in "ab"])
    core = dovetail.Core(config=False)
    found = core.compile_model(core.read_model(content, "onnx"), "NUMPY")({"x": X, "c": np.array(condition)})
    assert np.array_equal(found["a"], np.maximum(X, 0))
    assert np.array_equal(found["y"], -np.maximum(X, 0))


def test_nodes_for_different_devices_stay() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 5])
    graph = g.graph([g.node(Relu(), x) for _ in range(3)])
    first, *others = graph.nodes
    merged = merge_equal_nodes(graph.replace(nodes=(replace(first, affinity="A"), *others)))
    assert [node.affinity for node in merged.nodes] == ["A", ""]
