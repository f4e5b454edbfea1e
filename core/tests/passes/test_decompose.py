"""Decomposition: bodies replace operators, with names that tell where they come from."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import OperatorError
from dovetail.graph import Graph, GraphBuilder, Node, TensorType
from dovetail.op import FLOATS, Operator
from dovetail.ops.add import Add
from dovetail.ops.relu import Relu
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.decompose import decompose


class Shifted(Operator):
    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    by: float = 1.0

    def compose(self, g: GraphBuilder, x: str) -> str:
        t = g.type_of(x)
        assert t is not None
        y: str = g.node(Add(), x, g.constant(self.by, t.dtype), name="shift")
        return y


class Both(Operator):
    """relu(x + 2), x, and a constant: an inner result, an input and a constant as outputs."""

    domain = "test"
    inputs = ("X: T", "unused?: T")
    outputs = ("Y: T", "same: T", "two: T")
    types = {"T": FLOATS}

    def infer(self, X: TensorType, unused: TensorType | None = None) -> tuple[TensorType, ...]:
        return X, X, X.with_shape(())

    def compose(self, g: GraphBuilder, x: str, unused: str = "") -> tuple[str, ...]:
        assert unused == ""
        return g.node(Relu(), g.node(Shifted(by=2.0), x), name="relu"), x, g.constant(2.0, "float32")


class Endless(Operator):
    domain = "test"

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Relay(), x)


class Relay(Operator):
    domain = "test"

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Endless(), x)


def never(node: Node, graph: Graph) -> bool:
    return False


def typed(op: Operator, outputs: int = 1) -> Graph:
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    names = [f"out{i}" for i in range(outputs)]
    g.node(op, x, name="top", outputs=names)
    return fold_constants(g.graph(names))


def run(graph: Graph, x: np.ndarray[Any, Any]) -> list[Any]:
    """Fold the whole graph with its input as a constant."""
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    return [done.constants[name] for name in graph.outputs]


def test_names_tell_the_way_and_nested_bodies_are_expanded() -> None:
    graph = decompose(typed(Both(), 3), never)
    assert {n.name for n in graph.nodes} >= {"top/shifted/shift", "top/relu"}
    assert {n.op.key for n in graph.nodes} == {"Add", "Relu", "Identity"}
    assert all(n.origins == ("top",) for n in graph.nodes)


def test_every_output_has_its_value() -> None:
    x = np.array([-3, 0.5, 7], np.float32)
    relu, same, two = run(decompose(typed(Both(), 3), never), x)
    np.testing.assert_array_equal(relu, [0, 2.5, 9])
    np.testing.assert_array_equal(same, x)
    assert two == 2


def test_a_kept_operator_stays_at_any_depth() -> None:
    graph = decompose(typed(Both(), 3), lambda node, inside: node.op.op_type == "Shifted")
    assert "test::Shifted" in {n.op.key for n in graph.nodes}
    whole = typed(Both(), 3)
    assert decompose(whole, lambda node, inside: True).nodes == whole.nodes


def test_the_composition_serves_as_reference() -> None:
    np.testing.assert_array_equal(Shifted(by=0.5).reference(np.float32([1, 2]))[0], np.float32([1.5, 2.5]))


def test_a_composition_of_itself_is_an_error_that_shows_the_chain() -> None:
    with pytest.raises(OperatorError, match=r"test::Endless -> test::Relay -> test::Endless"):
        decompose(typed(Endless()), never)
