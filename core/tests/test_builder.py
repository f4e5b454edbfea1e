"""`GraphBuilder` refuses names that nothing defines, where they are written."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import GraphError, UsageError
from dovetail.frontend import validate
from dovetail.graph import DType, GraphBuilder, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.relu import Relu


@pytest.fixture
def g() -> GraphBuilder:
    builder = GraphBuilder()
    builder.input("image", "float32", [2])
    return builder


def test_an_input_that_is_not_defined(g: GraphBuilder) -> None:
    with pytest.raises(GraphError, match=r"node 'relu' reads 'imag', which is not defined") as caught:
        g.node(Relu(), "imag")
    assert caught.value.hint == "Did you mean 'image'?"
    y = g.node(Relu(), "image", name="first", outputs=["y"])
    with pytest.raises(GraphError, match="node 'relu' reads 'first'"):
        g.node(Relu(), "first")  # a node, not a value
    assert g.model([g.node(Add(), y, "image")]).graph.nodes[1].inputs == ("y", "image")


@pytest.mark.parametrize("output", ["z", "", 3])
def test_an_output_that_is_not_defined(g: GraphBuilder, output: Any) -> None:
    with pytest.raises(GraphError, match=f"the output {output!r} is not defined"):
        g.model([output])


def test_sub_graphs_read_names_from_around_them() -> None:
    assert GraphBuilder("body").node(Relu(), "outside") == "body/relu:0"
    assert GraphBuilder("body", {"outside": TensorType(DType.FLOAT32, (2,))}).node(Relu(), "outside") == "body/relu:0"
    with pytest.raises(GraphError, match="reads 'outsid'"):
        GraphBuilder("body", {"outside": TensorType(DType.FLOAT32, (2,))}).node(Relu(), "outsid")


def test_mistakes_in_the_kind_of_an_argument(g: GraphBuilder) -> None:
    with pytest.raises(GraphError, match=r"operator is the class Relu\n  accepted: an object, Relu\(\.\.\.\)"):
        g.node(Relu, "image")  # type: ignore[call-overload]
    with pytest.raises(GraphError, match=r"the outputs are one name, 'relu:0'\n  accepted: a list, \['relu:0'\]"):
        g.model(g.node(Relu(), "image"))


def test_an_input_that_is_refused_is_not_kept(g: GraphBuilder) -> None:
    with pytest.raises(UsageError, match="float33"):
        g.input("x", "float33", [2])
    g.input("x", "float32", [2])
    assert list(g.model([g.node(Add(), "image", "x")]).inputs) == ["image", "x"]


@pytest.mark.parametrize("wrong", [np.ones(2, np.float32), 7, ("float32",), 1.5])
def test_what_is_not_a_data_type_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"a data type was expected, not {type(wrong).__name__}") as caught:
        DType.of(wrong)
    assert "a name such as 'float32'" in str(caught.value)


def test_a_node_may_have_the_name_of_its_output(g: GraphBuilder) -> None:
    assert g.node(Relu(), "image", name="y", outputs=["y"]) == "y"
    assert g.node(Relu(), "y", outputs=["relu"]) == "relu"  # the name that the builder would give the node
    validate(g.graph(["relu"]))


@pytest.mark.parametrize("outputs", [["image"], ["relu:0"], ["z", "z"]])
def test_an_output_name_that_is_taken(g: GraphBuilder, outputs: list[str]) -> None:
    g.node(Relu(), "image")
    with pytest.raises(GraphError, match=f"the output name '{outputs[-1]}' is defined twice"):
        g.node(Relu(), "image", outputs=outputs)


def test_types_of_inputs() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    assert g.given(x) is g.type_of(x)
    assert g.type_of("") is None
    with pytest.raises(AssertionError, match="a required input is left out"):
        g.given("")
