"""Operators that are built of the graph around them: expanded before all else, with any value of it at hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import GraphError, OperatorError, OutOfMemory
from dovetail.graph import Graph, GraphBuilder, Model, Node, TensorType
from dovetail.op import FLOATS, Operator
from dovetail.passes.compose_in_graph import MAX_ROUNDS, compose_in_graph
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg


class Plus(Operator):
    """X + another value of the graph."""

    domain = "test"
    types = {"T": FLOATS}
    inputs = ("X: T",)
    outputs = ("Y: T",)
    other: str

    def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> Any:
        if any(n.op.has_compose_in() and self.other in n.writes for n in graph.nodes):
            return None
        doubled = g.node(Add(), node.inputs[0], self.other)
        assert g.type_of(doubled) is not None
        return doubled


class Copies(Operator):
    """X, with so many nodes."""

    domain = "test"
    count: int

    def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> str:
        x = node.inputs[0]
        for _ in range(self.count):
            x = g.node(Neg(), x)
        return x


class Wrong(Operator):
    """An operator whose composition depends on `how`."""

    domain = "test"
    outputs = ("Y", "Z")
    how: str

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        return X, X

    def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> Any:
        x = node.inputs[0]
        if self.how == "count":
            return x
        if self.how == "unknown":
            return x, "nowhere"
        if self.how == "type":
            return x, g.constant(1.0, "float32")
        return x, g.node(Neg(), node.outputs[0])


def run(model: Model, *arrays: Any) -> list[Any]:
    """The outputs on the reference device."""
    with dovetail.Core().compile_model(model, "NUMPY", {"FALLBACK": False}) as compiled:
        results = compiled(list(arrays))
        return [results[i] for i in range(len(results))]


def with_two(first: Sequence[Operator], outputs: Sequence[str] = ("a", "b")) -> Model:
    """x -> operators that write a, b, ...; beside them h = 3 x, which nothing else reads."""
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    g.node(Mul(), x, g.constant([3.0], "float32"), outputs=["h"])
    for op, name in zip(first, "abcd", strict=False):
        g.node(op, x, outputs=[name], name=f"make_{name}")
    return g.model(list(outputs))


X = np.array([1, -2], np.float32)


def test_reads_values_that_nothing_else_reads() -> None:
    (a,) = run(with_two([Plus(other="h")], ["a"]), X)
    np.testing.assert_array_equal(a, 4 * X)


def test_constants_are_not_folded_yet() -> None:
    seen = []

    class Look(Operator):
        domain = "test"

        def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> str:
            seen.extend(n.name for n in graph.nodes)
            return node.inputs[0]

    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    g.node(Neg(), g.constant([1.0], "float32"), outputs=["folded"], name="of_constants")
    g.node(Look(), x, outputs=["y"])
    np.testing.assert_array_equal(run(g.model(["y"]), X)[0], X)
    assert "of_constants" in seen


def test_one_may_wait_for_another() -> None:
    a, b = run(with_two([Plus(other="b"), Plus(other="h")]), X)
    np.testing.assert_array_equal(b, 4 * X)
    np.testing.assert_array_equal(a, 5 * X)


def test_names_and_origins_tell_where_nodes_come_from() -> None:
    model = with_two([Plus(other="h")], ["a"])
    nodes = {n.name: n.origins for n in compose_in_graph(model.graph).nodes}
    assert nodes["make_a/add"] == ("make_a",)
    assert "make_a" not in nodes


def test_waiting_for_each_other_is_an_error() -> None:
    with pytest.raises(OperatorError, match=r"node 'make_a' \(test::Plus\) needs values that depend on 'make_b'"):
        run(with_two([Plus(other="b"), Plus(other="a")]), X)
    with pytest.raises(OperatorError, match=r"node 'make_a' .* depend on itself"):
        run(with_two([Plus(other="a")], ["a"]), X)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("count", r"node 'wrong' .*compose_in\(\) returned 1 outputs, the node has 2"),
        ("unknown", r"node 'wrong' .*'nowhere', which is not an input"),
        ("type", r"node 'wrong' .*output 1: .* gives float32\[\], infer\(\) says float32\[2\]"),
    ],
)
def test_wrong_compositions(how: str, message: str) -> None:
    g = GraphBuilder()
    g.node(Wrong(how=how), g.input("x", "float32", [2]), outputs=["y", "z"], name="wrong")
    with pytest.raises(OperatorError, match=message):
        run(g.model(["y", "z"]), X)


def test_reading_what_depends_on_the_node_is_a_cycle() -> None:
    g = GraphBuilder()
    y, _ = g.node(Wrong(how="own"), g.input("x", "float32", [2]), outputs=["y", "z"], name="own")
    g.node(Neg(), y, outputs=["later"])
    g.node(Plus(other="later"), y, outputs=["w"])

    class Later(Wrong):
        def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> Any:
            return g.node(Neg(), "later"), node.inputs[0]

    model = g.model(["w"])
    nodes = tuple(Node(n.name, Later(how="own") if n.name == "own" else n.op, n.inputs, n.outputs) for n in model.graph.nodes)
    with pytest.raises(GraphError, match="cycle"):
        run(Model(model.graph.replace(nodes=nodes)), X)


def test_waiting_for_one_another_is_bounded() -> None:
    def chain(length: int) -> Model:
        g = GraphBuilder()
        x = g.input("x", "float32", [2])
        for i in range(length):
            g.node(Plus(other=f"v{i + 1}" if i + 1 < length else "x"), x, outputs=[f"v{i}"])
        return g.model(["v0"])

    np.testing.assert_array_equal(run(chain(MAX_ROUNDS), X)[0], (MAX_ROUNDS + 1) * X)
    with pytest.raises(OperatorError, match="waits for others that wait for others, more than 32 deep"):
        run(chain(MAX_ROUNDS + 1), X)


def test_growth_is_bounded() -> None:
    with pytest.raises(OutOfMemory, match=r"make a graph of .* nodes; the limit is 5,040"):
        run(with_two([Copies(count=5_100)], ["a"]), X)


def test_a_branch_that_is_taken_for_certain_is_the_graph_around_its_nodes() -> None:
    def branch(factor: float) -> Graph:
        g = GraphBuilder()
        g.node(Mul(), "x", g.constant([factor], "float32"), outputs=["inner"])
        g.node(Plus(other="inner"), "inner", outputs=["given"])
        return g.graph(["given"])

    g = GraphBuilder()
    g.input("x", "float32", [2])
    condition = g.constant(True, "bool")
    g.node(If(then_branch=branch(3.0), else_branch=branch(5.0)), condition, outputs=["y"])
    with dovetail.Core().compile_model(g.model(["y"]), "NUMPY") as compiled:
        np.testing.assert_array_equal(compiled(X)[0], 6 * X)
